"""What a lab run has shown: whether an episode would end as it did, and where agents differ. Pure.

    then: the journal          ┐
                               ├──▶ the same findings, outputs, classification and end, or not
    now: what the code of      │
    today did in the lab       ┘──▶ the first request whose answer differs; both costs

Texts that models write are never the same twice. So findings are compared by key, class and
severity, outputs by adapter and key; and of two answers with calls of tools, only these are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

import msgspec

from engine.agents.answer_text import calls_of, texts_of
from engine.episodes.episode import Episode, Performed, attempt_at
from engine.errors import BUDGET_EXCEEDED, BadHistory
from engine.outputs.keys import output_key
from streams.json import NOTHING, unraw
from streams.model.events import (
    EndStatus,
    EpisodeConverged,
    EpisodeOpened,
    LogEvent,
    StepAnnounced,
    StepKind,
    StepRecorded,
    position_of,
    request_of,
)
from streams.model.findings import ClearFinding, FindingIntent, RaiseFinding
from streams.model.outputs import OutputIntent, OutputResult

DONE: Final = "done"
"""How an episode ends that has not failed."""

Made: TypeAlias = StepRecorded | Performed
"""A step with its result: on the journal, or in the lab."""


class LabCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the requests to models of one episode have used."""

    requests: int = 0
    tokens: int = 0
    cost_usd: Decimal | None = None
    """None: nobody knows of any request."""


class LabDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Something that did not come out as it was recorded."""

    what: str
    """`end`, `classification`, `finding <key>` or `output <adapter> <key>`."""
    then: object
    now: object
    """None: there is none."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first request to a model whose answer is not the recorded one."""

    request: str
    """Such as `request 2 of triage`."""
    path: str
    """Of the request, such as `1.m2.1`."""
    then: str
    now: str
    """What was answered: calls of tools with their arguments, else a text; empty: nothing was, as
    there was no such request."""


class LabVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """How an episode came out in the lab."""

    episode_id: str
    actor_id: str
    expectation_id: str
    differences: tuple[LabDifference, ...]
    divergence: Divergence | None
    """None: every answer is as it was."""
    then: LabCost
    now: LabCost
    """Those of requests that the journal has answered included, as they were."""
    asked: int
    """How many requests a model has answered in the lab; the journal has answered the others."""

    @property
    def is_same(self) -> bool:
        """Whether it ended as it did, with the same findings, outputs and classification."""
        return not self.differences


class LabEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How an episode ended, as far as it is compared."""

    end: str
    """`done`, or an error class."""
    detail: str = ""
    """What went wrong."""
    findings: Mapping[str, str] = {}
    """Key → what was asked to be done about it."""
    outputs: frozenset[str] = frozenset()
    """Adapter and key of each."""
    classification: object = None


def end_of(
    opened: EpisodeOpened,
    end: str,
    *,
    detail: str = "",
    reported: Iterable[FindingIntent] = (),
    sent: Iterable[tuple[str, str]] = (),
    converged: EpisodeConverged | None = None,
) -> LabEnd:
    """Return how an episode ended.

    Args:
        reported: what was asked to be done about findings before the end.
        sent: adapter and key of each output before it.
    """
    said = converged or EpisodeConverged()
    intents = (*reported, *said.findings)
    outputs = [*sent, *(_address(each, opened) for each in said.outputs)]
    return LabEnd(
        end=end,
        detail=detail,
        findings={each.finding_key: _in_words(each) for each in intents},
        outputs=_named(outputs, opened),
        classification=None if said.classification == NOTHING else unraw(said.classification),
    )


def recorded_end(episode: Episode, life: Sequence[LogEvent]) -> LabEnd:
    """Return how an episode has ended, `life` being what it did since it last began anew.

    Raises `BadHistory` if it has not, or if its journal does not say what it has found.
    """
    opened, end, converged = episode.opened, episode.finished, episode.converged
    if opened is None or end is None:
        raise BadHistory("its episode has not ended: there is nothing to compare with")
    announced = [each for each in life if isinstance(each, StepAnnounced)]
    steps = [each for each in life if isinstance(each, StepRecorded) and not each.error_class]
    reported = [intent for each in announced for intent in each.findings]
    if not reported and any(each.kind is StepKind.REPORT for each in steps):
        raise BadHistory("it is a dry run, and what it reported while it ran was not recorded")
    sent = [
        (
            each.tool_name.partition(".")[2],
            msgspec.json.decode(each.result, type=OutputResult).output_key,
        )
        for each in steps
        if each.kind is StepKind.OUTPUT
    ]
    is_exhausted = converged is not None and bool(converged.exhausted)
    failed = end.error_class or end.status.value
    is_done = end.status in {EndStatus.DONE, EndStatus.PARTIALLY_FAILED}
    return end_of(
        opened,
        BUDGET_EXCEEDED if is_exhausted else DONE if is_done else failed,
        detail=end.error_detail,
        reported=reported,
        sent=sent,
        converged=None if is_exhausted else converged,
    )


def differences(then: LabEnd, now: LabEnd) -> tuple[LabDifference, ...]:
    """Return what has not come out as it was; of a failure also what went wrong."""
    pairs: list[tuple[str, object, object]] = []
    if then.end != now.end:
        pairs.append(("end", _end_in_words(then), _end_in_words(now)))
    if then.classification != now.classification:
        pairs.append(("classification", then.classification, now.classification))
    for key in dict.fromkeys([*then.findings, *now.findings]):
        was, is_ = then.findings.get(key), now.findings.get(key)
        if was != is_:  # guard: lab-compares-findings
            pairs.append((f"finding {key}", was, is_))
    for name in sorted(then.outputs ^ now.outputs):
        was, is_ = ("sent", None) if name in then.outputs else (None, "sent")
        pairs.append((f"output {name}", was, is_))
    return tuple(LabDifference(what=what, then=was, now=is_) for what, was, is_ in pairs)


def cost_of(steps: Iterable[Made]) -> LabCost:
    """Return what the requests to models among `steps` have used, repeated ones included."""
    requests = [each for each in steps if each.kind is StepKind.MODEL_REQUEST]
    costs = [each.cost_usd for each in requests if each.cost_usd is not None]
    return LabCost(
        requests=len(requests),
        tokens=sum(each.cost_tokens for each in requests),
        cost_usd=sum(costs, Decimal(0)) if costs else None,
    )


def first_divergence(then: Iterable[Made], now: Iterable[Made]) -> Divergence | None:
    """Return the first request whose answer differs, in the order in which an agent asks."""
    before, after = _answered(then), _answered(now)
    for path in sorted({*before, *after}, key=position_of):
        was, is_ = before.get(path), after.get(path)
        told = answer_of(was), answer_of(is_)
        if told[0] != told[1]:  # guard: lab-first-divergence
            request = was or is_
            assert request is not None, "one of them has it"
            return Divergence(
                request=f"request {request_of(path)} of {request.tool_name}",
                path=path,
                then=told[0],
                now=told[1],
            )
    return None


def answer_of(step: Made | None) -> str:
    """Return what a model has answered: its calls of tools, else its text; "": nothing."""
    if step is None:
        return ""
    if step.error_class:
        return f"failed: {step.error_class}"
    answer = unraw(step.result)
    calls, texts = calls_of(answer), texts_of(answer)
    return ", ".join(calls) if calls else "\n".join(texts)  # guard: lab-words-beside-calls


def _answered(steps: Iterable[Made]) -> dict[str, Made]:
    """Return path → the last attempt at a request."""
    return {
        attempt_at(each.path)[0]: each
        for each in steps
        if each.kind is StepKind.MODEL_REQUEST and not each.retry_s
    }


def _in_words(intent: FindingIntent) -> str:
    match intent:
        case RaiseFinding(class_=class_, severity=severity):
            return ", ".join(filter(None, ("raised", class_, severity and severity.value)))
        case ClearFinding():
            return "cleared"
        case _:
            severity = intent.severity
            return ", ".join(filter(None, ("updated", severity and severity.value)))


def _end_in_words(end: LabEnd) -> str:
    return ": ".join(filter(None, (end.end, end.detail)))


def _address(intent: OutputIntent, opened: EpisodeOpened) -> tuple[str, str]:
    return intent.adapter, output_key(intent, opened, place="")


def _named(outputs: Iterable[tuple[str, str]], opened: EpisodeOpened) -> frozenset[str]:
    """Return the outputs by adapter and key; those without a key of their own are counted."""
    count: Counter[str] = Counter()
    named: set[str] = set()
    for adapter, key in outputs:
        if key.startswith(f"{opened.episode_id}."):
            count[adapter] += 1
            named.add(f"{adapter} {count[adapter]}")
        else:
            named.add(f"{adapter} {key}")
    return frozenset(named)
