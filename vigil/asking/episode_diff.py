"""How two episodes differ: the first step that does, what came of them, and what they cost. Pure.

Steps are compared as people may see them: what is redacted, or hidden, counts as equal. Of a
function they are matched by the path of their call, so that branches which ran in another order are
the same; of any other strategy, by their number. Only the steps since a strategy last began anew
count, and what `ctx.changed` answered is none: where it matters, a step after it differs. Times,
nodes and costs are no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

import msgspec

from engine.episodes.episode import Episode, fold
from engine.functions.history import CHANGED
from projections.episodes import is_whole, shown_result
from streams.json import NOTHING, unraw
from streams.model.events import (
    GRANTED,
    EpisodeConverged,
    EpisodeOpened,
    EpisodeStarted,
    Position,
    StepAnnounced,
    StepKind,
    StepRecorded,
    position_of,
)
from streams.model.findings import FindingIntent
from streams.model.money import NO_USD
from streams.model.outputs import OutputIntent
from streams.ports.log import Recorded

Values: TypeAlias = Mapping[str, object]

_NO_VALUES: Final[Values] = {}


class EpisodeCost(msgspec.Struct, frozen=True, kw_only=True):
    """One of two episodes, and what it cost so far."""

    episode_id: str
    actor_id: str
    expectation_id: str
    mode: str
    status: str
    turns: int
    calls: int
    """Calls of tools that are recorded, those of a fork's past included."""
    tokens: int
    usd: Decimal = NO_USD
    """What its requests to models, and its children, have cost in dollars, as its budget counts."""
    ms: int
    """How long it has run, in milliseconds."""
    requests: int = 0
    """How often its agents have asked models."""
    tools: Mapping[str, int] = {}
    """Tool → how often it was called, by its code and by its agents."""


class ValueDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A value that two episodes do not share."""

    name: str
    left: object
    right: object
    """None: there is none."""


class StepDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first step that two episodes do not share."""

    step: str
    """The path of its call, such as `4.2.1`; of a strategy that is a class, its number."""
    values: Sequence[ValueDifference]
    """What differs of `call`, `arguments`, `result` and `error`; first the call, so that people see
    which it is, also if both have made the same."""
    only_in: str = ""
    """`left` or `right`, if only that one has come so far; empty: both have the step."""


class EpisodeDiff(msgspec.Struct, frozen=True, kw_only=True):
    """How two episodes differ."""

    left: EpisodeCost
    right: EpisodeCost
    relation: str
    """How one comes from the other, in words; empty: they do not."""
    common_steps: int
    """How many steps they share before the first that differs."""
    step: StepDifference | None
    """The first step that differs; None: they have the same steps."""
    begins: Sequence[ValueDifference]
    """What differs of what they are and were opened with: `actor`, `expectation`, `payload`."""
    findings: Sequence[ValueDifference]
    """By key: what each asked to be done about a finding, where that differs."""
    outputs: Sequence[ValueDifference]
    """By adapter and key: what each asked to be delivered, where that differs."""
    ends: Sequence[ValueDifference]
    """What differs of how they ended: `status`, `summary`, `classification`, `confidence`,
    `result`, `error`."""

    @property
    def is_same(self) -> bool:
        """Whether nothing differs but what they cost."""
        # guard: same-run-told
        return self.step is None and not (self.begins or self.findings or self.outputs or self.ends)


def diff(left: Sequence[Recorded], right: Sequence[Recorded]) -> EpisodeDiff:
    """Return how two episodes differ, by their journals, each of which has an episode."""
    runs = _Run(left), _Run(right)
    common, step = _first_different(runs[0].steps, runs[1].steps)
    return EpisodeDiff(
        left=runs[0].cost(),
        right=runs[1].cost(),
        relation=_relation(*runs),
        common_steps=common,
        step=step,
        begins=_differences(runs[0].begins(), runs[1].begins()),
        findings=_differences(runs[0].findings(), runs[1].findings()),
        outputs=_differences(runs[0].outputs(), runs[1].outputs()),
        ends=_differences(runs[0].ends(), runs[1].ends()),
    )


class _Run:
    """One of the episodes, since its strategy last began anew."""

    def __init__(self, records: Sequence[Recorded]) -> None:
        events = [event for record in records for event in record.commit.events]
        self.episode: Episode = fold(records)
        assert self.episode.opened is not None, "the caller looks whether there is one"
        self.opened: EpisodeOpened = self.episode.opened
        anew = [n for n, e in enumerate(events) if isinstance(e, EpisodeStarted) and e.fresh]
        life = events[anew[-1] if anew else 0 :]  # guard: diff-of-last-life
        recorded = [event for event in life if isinstance(event, StepRecorded)]
        # guard: changes-not-diffed
        steps = [each for each in recorded if not each.path.startswith((CHANGED, GRANTED))]
        self.steps = {_place(each, n): each for n, each in enumerate(steps, start=1)}
        self.announced = [event for event in life if isinstance(event, StepAnnounced)]
        all_ = [event for event in events if isinstance(event, StepRecorded)]
        called = [event.tool_name for event in all_ if event.kind is StepKind.TOOL_CALL]
        self.calls, self.tools = len(called), Counter(called)
        self.requests = sum(event.kind is StepKind.MODEL_REQUEST for event in all_)

    @property
    def converged(self) -> EpisodeConverged:
        return self.episode.converged or EpisodeConverged()

    def cost(self) -> EpisodeCost:
        end, episode = self.episode.finished, self.episode
        return EpisodeCost(
            episode_id=self.opened.episode_id,
            actor_id=self.opened.actor_id,
            expectation_id=self.opened.expectation_id,
            mode=self.opened.mode.value,
            status=episode.status.value,
            turns=episode.turns_used if end is None else end.turns_used,
            calls=self.calls,
            tokens=episode.tokens_used if end is None else end.tokens_used,
            usd=episode.usd_used if end is None else end.usd_used,
            requests=self.requests,
            tools=dict(sorted(self.tools.items())),
            ms=round(episode.wall_used_s * 1000) if end is None else end.wall_used_ms,
        )

    def begins(self) -> Values:
        return {
            "actor": self.opened.actor_id,
            "expectation": self.opened.expectation_id,
            "payload": self.opened.trigger.payload,
        }

    def findings(self) -> Values:
        reported = (intent for each in self.announced for intent in each.findings)
        return {
            each.finding_key: _of_intent(each) for each in (*reported, *self.converged.findings)
        }

    def outputs(self) -> Values:
        found: dict[str, object] = {}
        for number, each in enumerate(self.converged.outputs, start=1):
            name = f"{each.adapter}:{each.dedupe_key or each.key or number}"
            found[name] = _of_intent(each)
        return found

    def ends(self) -> Values:
        end, said = self.episode.finished, self.converged
        return {
            "status": self.episode.status.value,
            "summary": said.summary or None,
            "classification": _value(said.classification),
            "confidence": said.confidence,
            "result": _value(said.result),
            "error": None if end is None else _error(end.error_class, end.error_detail),
        }


def _place(step: StepRecorded, number: int) -> Position:
    return position_of(step.path) if step.path else ((number, 0, 0, ""),)


def _first_different(
    left: Mapping[Position, StepRecorded], right: Mapping[Position, StepRecorded]
) -> tuple[int, StepDifference | None]:
    """Return how many steps are common, and the first that is not."""
    for common, place in enumerate(sorted({*left, *right})):
        ours, theirs = left.get(place), right.get(place)
        before, after = _seen(ours), _seen(theirs)
        if before == after:  # guard: equal-steps-are-common
            continue
        values = _differences(before, after)
        if ours is not None and theirs is not None and before["call"] == after["call"]:
            call = before["call"]
            values = [ValueDifference(name="call", left=call, right=call), *values]
        only_in = "right" if ours is None else "left" if theirs is None else ""
        number, there = place[0][0], ours or theirs
        step = (there.path if there is not None else "") or str(number)
        return common, StepDifference(step=step, values=values, only_in=only_in)
    return len(left), None


def _seen(step: StepRecorded | None) -> Values:
    """Return what people may see of a step, but for its costs."""
    if step is None:
        return _NO_VALUES
    size = None if step.stored is None else step.stored.size_bytes
    # guard: diff-shows-no-more
    digest = step.stored.digest if step.stored is not None and is_whole(step) else ""
    shown = _value(shown_result(step))
    return {
        "call": step.tool_name or step.kind.value,
        "arguments": _value(step.args),
        "result": shown if size is None else f"{size:,} bytes {digest}".strip(),
        "error": _error(step.error_class, step.error_detail),
    }


def _differences(left: Values, right: Values) -> list[ValueDifference]:
    """Return what differs, in the order of `left`, then of `right`."""
    return [
        ValueDifference(name=name, left=left.get(name), right=right.get(name))
        for name in dict.fromkeys([*left, *right])
        if left.get(name) != right.get(name)
    ]


def _of_intent(intent: FindingIntent | OutputIntent) -> Values:
    """Return what an intent says, without what it leaves open."""
    said = msgspec.structs.asdict(intent)
    plain = {
        name.removesuffix("_json").rstrip("_"): _value(value)
        if isinstance(value, msgspec.Raw)
        else value
        for name, value in said.items()
    }
    names = {"finding_key", "adapter", "dedupe_key", "key"}
    do = {"do": intent.__struct_config__.tag} if not isinstance(intent, OutputIntent) else {}
    defaults: Iterable[object] = (None, "", (), 0.0, False)
    kept = {k: v for k, v in plain.items() if k not in names and v not in defaults}
    found: Values = msgspec.to_builtins({**do, **kept})
    return found


def _value(value: msgspec.Raw) -> object:
    return None if value == NOTHING else unraw(value)


def _error(error_class: str, detail: str) -> str | None:
    return ": ".join(filter(None, (error_class, detail))) or None


def _relation(left: _Run, right: _Run) -> str:
    ids = left.opened.episode_id, right.opened.episode_id
    if ids[0] == ids[1]:
        return "they are the same episode"
    for run, other, words in ((right, ids[0], "second"), (left, ids[1], "first")):
        fork = run.opened.fork
        if fork is not None and fork.episode_id == other:
            of = "first" if words == "second" else "second"
            return f"the {words} is a fork of the {of}, at step {fork.step_no}"
    forks = left.opened.fork, right.opened.fork
    if forks[0] is not None and forks[1] is not None and forks[0].episode_id == forks[1].episode_id:
        return f"both are forks of {forks[0].episode_id}"
    return ""
