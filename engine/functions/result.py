"""What a function may return, as a conclusion. Pure."""

from __future__ import annotations

from typing import Final

from engine.app.strategy import ConvergeResult, conclude
from engine.errors import InvalidResult
from streams.model.events import EpisodeConverged
from streams.model.findings import FindingIntent
from streams.model.outputs import OutputIntent


def conclusion(returned: object) -> EpisodeConverged | None:
    """Return what a function `returned` as the conclusion of its episode; None: it has none.

    Raises `InvalidResult` for anything but a `ConvergeResult`, findings, outputs, or nothing.
    """
    return None if returned is None else conclude(_result(returned))


def _result(returned: object) -> ConvergeResult:
    if isinstance(returned, ConvergeResult):
        return returned
    if isinstance(returned, FindingIntent | OutputIntent):
        return _of((returned,))
    if isinstance(returned, list | tuple):
        return _of(tuple(returned))
    raise InvalidResult(f"the function returned a {type(returned).__name__}; {WANTED}")


WANTED: Final = "return a ConvergeResult, findings, outputs, or nothing"


def _of(intents: tuple[object, ...]) -> ConvergeResult:
    strays = [each for each in intents if not isinstance(each, FindingIntent | OutputIntent)]
    if strays:
        raise InvalidResult(
            f"the function returned a list with a {type(strays[0]).__name__}; {WANTED}"
        )
    return ConvergeResult(
        findings=[each for each in intents if isinstance(each, FindingIntent)],
        outputs=[each for each in intents if isinstance(each, OutputIntent)],
    )
