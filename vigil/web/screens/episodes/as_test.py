"""An episode as a test of `vigil.testing`: fired anew, with what the outside answered then.

The test fires the expectation with the same payload at the same time of day, gives each tool and
each child the answers that the journal has, decides as people did, and expects the same end. What
the journal does not have makes a test impossible, and the reason is said instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pprint import pformat
from typing import Final

import msgspec

from projections.records import DecisionSummary, EpisodeRecord, StepRow
from streams.json import JsonObject
from streams.model.events import StepKind
from streams.model.outputs import ALL_OUTPUTS_FAILED
from streams.model.triggers import LogStrategy

WIDTH: Final = 88
"""Longest line of a value, in characters."""

TOLD: Final = frozenset({
    StepKind.TOOL_CALL.value, StepKind.EPISODE.value, StepKind.APPROVAL.value,
    StepKind.REPORT.value, StepKind.OUTPUT.value, StepKind.CHECKPOINT.value,
})  # fmt: skip
"""Kinds of steps that a test can repeat."""

ENDED: Final = frozenset({"done", "failed", "partially_failed"})

APP: Final = "app"
"""The module that the test takes the app from: whoever copies it has another one."""


class RepeatedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """An output of an episode, as far as a test of it needs to know."""

    output_key: str
    adapter: str
    status: str | None = None
    error_class: str | None = None
    error_detail: str | None = None


def why_not(
    episode: EpisodeRecord,
    steps: Sequence[StepRow],
    decisions: Sequence[DecisionSummary],
    outputs: Sequence[RepeatedOutput],
) -> str:
    """Return why an episode makes no test, in words; empty: it does."""
    if episode.status not in ENDED:
        return "It has not ended by itself."
    if episode.log_strategy != LogStrategy.FULL_DEBUG:
        return "Its log strategy hides what its tools returned."
    others = sorted({each.kind for each in steps if each.kind not in TOLD})
    if others:
        kinds = ", ".join(each.replace("_", " ") for each in others)
        return f"Nothing answers its steps of these kinds in a test: {kinds}."
    if any(each.result is None and each.result_digest for each in steps):
        return "A result of a step is too large to be in the rows."
    if any(each.kind == StepKind.EPISODE and each.error_class for each in steps):
        return "A child has failed."
    has_failed = episode.error_class == ALL_OUTPUTS_FAILED or episode.status == "partially_failed"
    # guard: later-delivery-makes-no-test
    if has_failed and not any(each.status == "failed" for each in outputs):
        return "An output of it that had failed was sent after it had ended."
    requests = sum(each.kind == StepKind.APPROVAL for each in steps)
    if requests != len(decisions):
        return "Nobody has decided on a request of it in time."
    if any(each.is_changed for each in decisions):
        return "Who approved a request of it has changed the plan."
    return ""


def as_test(
    episode: EpisodeRecord,
    steps: Sequence[StepRow],
    *,
    decisions: Sequence[DecisionSummary],
    findings: Mapping[str, str],
    outputs: Sequence[RepeatedOutput],
) -> str:
    """Return the text of a module with the test.

    Args:
        decisions: what people decided on its requests, in order.
        findings: key → severity of those that it has left active.
        outputs: those that it has proposed.
    """
    given = _given(steps, outputs)
    payload = episode.trigger_ref.get("payload") or {}
    begins = f'datetime.fromisoformat("{episode.queued_at.isoformat()}")'
    arguments = [f"{name}={_indented(text)}," for name, text in given]
    decided = [
        line for each in decisions for line in (*_decided(each), "await vigil.run_until_idle()")
    ]
    expects = [
        f"ended = {_ended(episode.status, episode.error_class)}",
        "assert (episode.status, episode.error_class) == ended",
        *([f"assert episode.summary == {episode.summary!r}"] if episode.summary else []),
        "found = {each.finding_key: str(each.severity) for each in vigil.findings()}",
        f"assert found == {_indented(_text(dict(findings)), 8)}",
        "sent = sorted(each.adapter for each in vigil.outputs())",
        f"assert sent == {_indented(_text(sorted(each.adapter for each in outputs)), 8)}",
    ]
    body = [
        "await vigil.fire(",
        f"    {episode.actor_id!r},",
        f"    {episode.expectation_id!r},",
        f"    {_indented(_text(payload), 12)},",
        ")",
        "await vigil.run_until_idle()",
        *decided,
        "",
        f"episode = vigil.episode(expectation={episode.expectation_id!r})",
        *expects,
    ]
    return "\n".join(
        [
            f'"""Episode {episode.episode_id}, as a test."""',
            "",
            "from datetime import datetime",
            "",
            "import pytest",
            f"from {APP} import app  # The module of your app.",
            "",
            *_imports(given),
            "from vigil.testing import in_turn, run",
            "",
            "pytestmark = pytest.mark.vigil",
            "",
            "",
            f"async def test_episode_{str(episode.episode_id)[:8]}():",
            "    async with run(",
            "        app,",
            *(f"        {each}" for each in arguments),
            f"        start={begins},",
            "    ) as vigil:",
            *(f"        {line}" if line else "" for line in body),
            "",
        ]
    )


def _given(steps: Sequence[StepRow], outputs: Sequence[RepeatedOutput]) -> list[tuple[str, str]]:
    """Return the arguments that say what the outside answers: name → text."""
    tools = _answers(each for each in steps if each.kind == StepKind.TOOL_CALL)
    children = _answers(each for each in steps if each.kind == StepKind.EPISODE)
    failed = {
        each.adapter: f"DeliveryFailed({each.error_class!r}, {_short(each.error_detail)!r}, "
        "permanent=True)"
        for each in outputs
        if each.status == "failed"
    }
    said = (("tools", tools), ("episodes", children), ("outputs", failed))
    return [(name, _mapping(answers)) for name, answers in said if answers]


def _answers(steps: Iterable[StepRow]) -> dict[str, str]:
    """Return name → what answers its calls, one after the other."""
    by_name: dict[str, list[str]] = {}
    for each in steps:
        by_name.setdefault(each.tool_name or "", []).append(_answer(each))
    return {
        name: answers[0] if len(answers) == 1 else f"in_turn({', '.join(answers)})"
        for name, answers in by_name.items()
    }


def _answer(step: StepRow) -> str:
    if step.error_class:
        return f"Failure({step.error_class!r}, {_short(step.error_detail)!r})"
    result = step.result
    if step.kind == StepKind.EPISODE and isinstance(result, Mapping):
        result = result.get("value")
    return _text(result)


def _short(detail: str | None) -> str:
    """Return the last line of an error: of a traceback, what was raised."""
    *_, last = ["", *(detail or "").strip().splitlines()]
    return last


def _decided(decision: DecisionSummary) -> list[str]:
    """Return the decisions of all who had to approve, a line each."""
    verb = "approve" if decision.decision == "approved" else "deny"
    reason = decision.reason or ""
    people = decision.person.split(", ")
    return [f"await vigil.{verb}(by={who!r}, reason={reason!r})" for who in people]


def _ended(status: str, error_class: str | None) -> str:
    return f"({status!r}, {error_class or ''!r})"


def _imports(given: Sequence[tuple[str, str]]) -> list[str]:
    text = " ".join(each for _, each in given)
    names = [each for each in ("DeliveryFailed", "Failure") if f"{each}(" in text]
    return [f"from vigil import {', '.join(names)}"] if names else []


def _mapping(answers: Mapping[str, str]) -> str:
    lines = [f"    {name!r}: {_indented(answer)}," for name, answer in answers.items()]
    return "\n".join(["{", *lines, "}"])


def _text(value: JsonObject | object) -> str:
    return pformat(value, width=WIDTH, sort_dicts=False)


def _indented(text: str, by: int = 8) -> str:
    """Return a text whose lines after the first are further to the right."""
    return text.replace("\n", "\n" + " " * by)
