"""JSON objects that are published or carried by timers, encrypted."""

from __future__ import annotations

from typing import Final

import msgspec

from streams.json import UNDECODABLE, JsonObject, exact, raw
from streams.model.sealed import ERASED_KEY, SEALED_KEY, Sealed
from streams.sealing.seals import Seals
from streams.sealing.subjects import whose_payload

_SHOWN_ENDINGS: Final = ("_id", "_seq", "_key")
_SHOWN: Final = frozenset({"status", "trigger"})
"""Which values of a payload stay readable for who has no key: what it is about, and no contents."""

_decoder: Final = msgspec.json.Decoder(JsonObject)


async def seal_payload(seals: Seals, payload: JsonObject, *, shows: bool) -> JsonObject:
    """Return a payload encrypted, if it is about a subject of data; otherwise as it is.

    With `shows`, ids stay readable beside what is encrypted.

    Raises:
        TypeError, ValueError: it has something that JSON cannot express.
    """
    if SEALED_KEY in payload:
        return payload
    name = await seals.name_of_first(*whose_payload(payload, seals.kinds))
    if not name:
        return payload
    sealed = await seals.seal(bytes(exact(payload)), name)
    shown = _shown(payload, seals) if shows else {}
    return {**shown, SEALED_KEY: msgspec.to_builtins(sealed)}


async def unseal_payload(seals: Seals, payload: JsonObject) -> JsonObject:
    """Return a payload as it was; of what is erased, what stays, and `"$erased": true`."""
    if SEALED_KEY not in payload:
        return payload
    shown = {name: value for name, value in payload.items() if name != SEALED_KEY}
    try:
        sealed = msgspec.json.decode(raw(payload[SEALED_KEY]), type=Sealed)
        data = await seals.unseal(sealed)
        return {**shown, ERASED_KEY: True} if data is None else _decoder.decode(data)
    except UNDECODABLE:  # Anyone may publish what looks so.
        return payload


def _shown(payload: JsonObject, seals: Seals) -> JsonObject:
    kinds = {each.partition(".")[0] for each in seals.kinds}
    return {
        name: value
        for name, value in payload.items()
        if isinstance(value, str | int)
        and (name in _SHOWN or name in kinds or name.endswith(_SHOWN_ENDINGS))
    }
