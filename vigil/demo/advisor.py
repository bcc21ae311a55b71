"""What to do about a finding: look closer, note it, and advise.

Advice is a finding of its own, caused by the first one, and goes when that goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from engine.app.actions import Action, Converge, ToolCall
from vigil import (
    Context,
    ConvergeResult,
    EpisodeView,
    Failure,
    StepKind,
    StepTaken,
    Strategy,
    Trigger,
    clear_finding,
    converge,
    observe,
    raise_finding,
    synthesize,
    tool_call,
)

SUSPECTS: Final = 3


class AdviceCase(msgspec.Struct, frozen=True, kw_only=True):
    """What the advisor knows so far. This is the strategy's state."""

    finding_key: str
    class_: str
    severity: str
    summary: str
    subject_kind: str
    subject_id: str
    suspects: tuple[str, ...] | None = None
    """None until somebody looked."""
    unseen: str = ""
    """Why looking failed."""
    noted: bool = False
    advice: str = ""


class LookCloser(Strategy[AdviceCase]):
    """Finds out who is behind a finding, and advises."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> AdviceCase:
        """Take over the finding."""
        said = trigger.payload
        return AdviceCase(
            finding_key=said["finding_key"],
            class_=said["class"],
            severity=said["severity"],
            summary=said.get("summary", ""),
            subject_kind=said.get("subject_kind") or "host",
            subject_id=said["subject_id"],
        )

    def next_step(self, state: AdviceCase, ctx: Context) -> Action:
        """Look, note, advise, and end: each once."""
        if state.suspects is None:
            return look(state)
        if not state.noted:
            return observe({"suspects": list(state.suspects), "unseen": state.unseen})
        if not state.advice:
            return synthesize(
                {
                    "task": "Say in one or two sentences what a person should do.",
                    "finding": state.summary,
                    "suspects": list(state.suspects),
                    "draft": draft(state),
                }
            )
        return converge()

    def handle_result(self, state: AdviceCase, step: StepTaken, result: Any) -> AdviceCase:  # noqa: ANN401 - JSON
        """Learn from a step. One that failed leaves less to advise, but something."""
        match step.kind:
            case StepKind.TOOL_CALL if isinstance(result, Failure):
                return replace(state, suspects=(), unseen=result.detail or result.error_class)
            case StepKind.TOOL_CALL:
                return replace(state, suspects=names(result["largest"]))
            case StepKind.SYNTHESIS:
                return replace(state, advice=words(result) or draft(state))
            case _:
                return replace(state, noted=True)

    def converge(self, state: AdviceCase, ctx: Context) -> ConvergeResult:
        """Leave the advice as a finding, caused by the one that asked for it."""
        advice = raise_finding(
            advice_key(state.finding_key),
            class_="advice",
            severity=state.severity,
            # What was named may have been seen only in part; what was not seen is a guess.
            confidence=0.8 if state.suspects else 0.3,
            summary=state.advice,
            subject=(state.subject_kind, state.subject_id),
            evidence={"suspects": list(state.suspects or ()), "unseen": state.unseen},
            caused_by=state.finding_key,
        )
        return ConvergeResult(
            classification={"primary": "advised", "about": state.class_},
            confidence=advice.confidence,
            summary=state.advice,
            findings=[advice],
        )


class Cleared(msgspec.Struct, frozen=True):
    """The finding that is gone. This is the strategy's state."""

    finding_key: str


class WithdrawAdvice(Strategy[Cleared]):
    """Takes advice back when its reason is gone."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> Cleared:
        """Take over which finding it was."""
        return Cleared(trigger.payload["finding_key"])

    def next_step(self, state: Cleared, ctx: Context) -> Converge:
        """Decide at once."""
        return converge()

    def converge(self, state: Cleared, ctx: Context) -> ConvergeResult:
        """Clear the advice."""
        return ConvergeResult(
            classification={"primary": "withdrawn"},
            summary=f"{state.finding_key} is over",
            findings=[clear_finding(advice_key(state.finding_key), reason="its cause is over")],
        )


def advice_key(finding_key: str) -> str:
    """Return the key of the advice about a finding."""
    return f"advice:{finding_key}"


def look(case: AdviceCase) -> ToolCall:
    """Return the tool call that shows who is behind `case`."""
    host, _, mount = case.subject_id.partition(":")
    if case.class_ == "disk_filling":
        args = {"host": host, "path": mount or "/", "most": SUSPECTS}
        return tool_call("directories", "largest", args)
    by = "memory" if case.class_ == "memory_filling" else "cpu"
    return tool_call("processes", "top", {"host": host, "by": by, "most": SUSPECTS})


def names(largest: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the names in a tool's answer, the largest first."""
    return tuple(str(one["name"]) for one in largest)


def words(synthesis: object) -> str:
    """Return the advice in a synthesis: a model's words, or our draft if there was no model."""
    if isinstance(synthesis, dict):
        return str(synthesis.get("draft", ""))
    return str(synthesis)


def draft(case: AdviceCase) -> str:
    """Return advice by rule of thumb."""
    urgency = "Nothing to do now" if case.severity == "low" else "Act"
    if not case.suspects:
        return (
            f"{urgency}: {case.summary}. Who is behind it could not be seen. {case.unseen}".strip()
        )
    verb = "holds" if case.class_ != "processor_busy" else "uses"
    rest = f", then {' and '.join(case.suspects[1:])}" if case.suspects[1:] else ""
    return f"{urgency}: {case.summary}. {case.suspects[0]} {verb} the most{rest}."
