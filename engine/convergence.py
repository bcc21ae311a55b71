"""What an episode ends in. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from engine import state
from engine.errors import InvalidResult
from engine.finding import SUMMARY_CHARS_MAX, checked_key
from engine.proposal import checked_intent
from streams.events import EpisodeConverged
from streams.findings import ClearFinding, FindingIntent, RaiseFinding, UpdateFinding
from streams.json import JsonObject
from streams.outputs import OutputIntent

CONVERGED_BYTES_MAX: Final = 768 * 1024
"""Largest convergence: it must fit in one message, 1 MiB by the server's default."""

FINDINGS_MAX: Final = 1_000
"""Most findings of one convergence: the end of its episode, which names the outcome of each, must
fit in one message, too."""

OUTPUTS_MAX: Final = 100
"""Most outputs of one convergence: its episode waits until each is settled, and names them."""


class ConvergeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy decided is true."""

    classification: JsonObject = {}
    """Any JSON object, such as `{"primary": "disk_full"}`."""
    confidence: float | None = None
    """0.0 to 1.0; None where the strategy does not judge."""
    summary: str = ""
    """One sentence for people, of at most `SUMMARY_CHARS_MAX` characters."""
    findings: Sequence[FindingIntent] = ()
    """Made with `raise_finding`, `update_finding` and `clear_finding`; applied in order."""
    outputs: Sequence[OutputIntent] = ()
    """Made with `propose_output`; delivered once the findings are applied, in no order."""
    result: object = None
    """What a step of a workflow brings for those after it, any JSON value; None: an object of
    classification, confidence and summary."""


def conclude(result: object) -> EpisodeConverged:
    """Return `result` as the event that goes on the journal.

    Raises:
        InvalidResult: not a `ConvergeResult`, or one with impossible values.
        InvalidFinding, InvalidOutput: what one of its intents says is impossible.
        Unencodable: the classification or the result cannot be said in JSON.
    """
    if not isinstance(result, ConvergeResult):
        raise InvalidResult(f"converge() returned {_name(result)}; it must return a ConvergeResult")
    _check(result)
    converged = EpisodeConverged(
        classification=state.encode(result.classification, what="classification"),
        confidence=None if result.confidence is None else float(result.confidence),
        summary=result.summary[:SUMMARY_CHARS_MAX],
        findings=tuple(result.findings),
        outputs=tuple(result.outputs),
        result=state.encode(result.result, what="result"),
    )
    encoded = msgspec.json.encode(converged)
    try:
        msgspec.json.decode(encoded, type=EpisodeConverged)
    except msgspec.ValidationError as error:
        raise InvalidResult(f"something is of the wrong type: {error}") from error
    size_bytes = len(encoded)
    if size_bytes > CONVERGED_BYTES_MAX:
        raise InvalidResult(
            f"{_contents(result)} make {size_bytes:,} bytes, the limit is"
            f" {CONVERGED_BYTES_MAX:,}; keep evidence elsewhere and hand on references"
        )
    return converged


def _check(result: ConvergeResult) -> None:
    if not isinstance(result.classification, dict):
        raise InvalidResult(f"classification must be a dict, not {_name(result.classification)}")
    if not isinstance(result.summary, str):
        raise InvalidResult(f"summary must be text, not {_name(result.summary)}")
    confidence: object = result.confidence
    if confidence is not None and not (
        isinstance(confidence, int | float) and 0 <= confidence <= 1
    ):
        raise InvalidResult(f"confidence must be a number from 0 to 1, not {confidence!r}")
    _check_list("findings", result.findings, most=FINDINGS_MAX)
    _check_list("outputs", result.outputs, most=OUTPUTS_MAX)
    for output in result.outputs:
        checked_intent(output)
    for intent in result.findings:
        if not isinstance(intent, RaiseFinding | UpdateFinding | ClearFinding):
            raise InvalidResult(f"findings must be made with raise_finding(…), not {_name(intent)}")
        checked_key(intent.finding_key)


def _contents(result: ConvergeResult) -> str:
    outputs = f" and {len(result.outputs)} outputs" if result.outputs else ""
    return f"{len(result.findings)} findings{outputs}"


def _check_list(field: str, value: object, *, most: int) -> None:
    if not isinstance(value, list | tuple):
        raise InvalidResult(f"{field} must be a list, not {_name(value)}")
    if len(value) > most:
        raise InvalidResult(f"{len(value):,} {field}, the limit is {most:,}")


def _name(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
