"""Having outputs canceled that are still to be delivered; their episodes go on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine.outputs.requests import cancel_output
from streams.model.events import (
    LogEvent,
    OutputCanceled,
    OutputDelivered,
    OutputFailed,
    OutputRejected,
)
from vigil.outcomes import Outcome, Stand
from vigil.overruling import overrule
from vigil.settings import Reading

CANCELED: Final = "canceled"


def call_off(
    reading: Reading, keys: Iterable[str], *, by: str, reason: str, wait_s: float | None
) -> list[Outcome]:
    """Have outputs canceled, and return what came of that for each.

    Args:
        reading: the settings.
        keys: the outputs', each taken once.
        by: who wants it.
        reason: why.
        wait_s: as for `watch`.

    Raises:
        As `overrule`. Asking again is safe: what is canceled is refused.
    """
    return overrule(reading, keys, cancel_output, stand=_stand, by=by, reason=reason, wait_s=wait_s)


def _stand(id_: str, event: LogEvent) -> Stand | None:
    """Return what `event` means for the request `id_`; None: nothing."""
    match event:
        case OutputCanceled(cancel_id=cancel_id) if cancel_id == id_:
            return Stand(CANCELED, is_wanted=True)
        case OutputCanceled(by=by):
            return Stand(f"{by or 'who canceled its episode'} was faster", is_wanted=False)
        case OutputDelivered():
            return Stand("it was delivered before", is_wanted=False)
        case OutputFailed(error_class=error_class):
            return Stand(f"it has failed before: {error_class}", is_wanted=False)
        case OutputRejected():
            return Stand("it was rejected before", is_wanted=False)
        case _:
            return None
