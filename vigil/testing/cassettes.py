"""Answers of a model, recorded once and played in every test after that.

    run(app, synthesizer=Cassette("cassettes/advice.json", model=ask_the_model))

An answer is found by its prompt: tests may ask in any order, and again after a crash. With
`VIGIL_TEST_RECORD=1` the model is asked for answers that are missing. Keep the file beside the
test: it has prompts and answers unredacted, and no transient values.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.app.tools import CallContext, Synthesis, Synthesizer
from streams.json import JsonObject, raw
from vigil.testing.stubs import Unstubbed

RECORD: Final = "VIGIL_TEST_RECORD"
"""The environment variable that allows recording: `1`."""

SHOWN_CHARS_MAX: Final = 200
"""Most characters of a prompt that an error shows."""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a model."""

    prompt: Any
    content: Any
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""


class Cassette:
    """A synthesizer that answers from a file."""

    def __init__(
        self, path: str | Path, *, model: Synthesizer | None = None, records: bool | None = None
    ) -> None:
        """Answer from the file at `path`, which need not exist while it records.

        `model` is asked for what the file has not, and the answer is added, if `records`; by
        default that is when `VIGIL_TEST_RECORD` is `1`. Raises `ValueError` if the file is none.
        """
        self._path, self._model = Path(path), model
        self._records = os.environ.get(RECORD) == "1" if records is None else records
        self._known = _read(self._path)

    async def __call__(self, prompt: object, transient: JsonObject, ctx: CallContext) -> Synthesis:
        """Return the recorded answer to `prompt`; `Unstubbed` if there is none."""
        key = hashlib.sha256(bytes(raw(prompt))).hexdigest()
        if key not in self._known:
            self._known[key] = await self._asked(prompt, transient, ctx)
            self._write()
        known = self._known[key]
        return Synthesis(
            content=known.content,
            input_tokens=known.input_tokens,
            output_tokens=known.output_tokens,
            model=known.model,
        )

    async def _asked(self, prompt: object, transient: JsonObject, ctx: CallContext) -> Recording:
        if not self._records or self._model is None:  # guard: cassette-asks-no-model
            shown = bytes(raw(prompt)).decode()[:SHOWN_CHARS_MAX]
            how = f"{RECORD}=1 asks the model" if self._model else "give it a model to record"
            raise Unstubbed(f"{self._path} has no answer to {shown}; {how}")
        said = await self._model(prompt, transient, ctx)
        told = said if isinstance(said, Synthesis) else Synthesis(content=said)
        return Recording(
            prompt=prompt,
            content=told.content,
            input_tokens=told.input_tokens,
            output_tokens=told.output_tokens,
            model=told.model,
        )

    def _write(self) -> None:
        """Write all answers, in the order of their keys, so that two recordings are alike."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.format(bytes(raw(self._known)), indent=2)
        self._path.write_bytes(text + b"\n")


def _read(path: Path) -> dict[str, Recording]:
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Recording])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no cassette: {error}") from error
