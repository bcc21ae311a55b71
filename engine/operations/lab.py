"""Runs recorded episodes again with the code of today, asks models anew, and tells what differs.

    history ──▶ the function, from the top ──▶ verdict
                 │ a request to a model        made, unless the recorded one is the same
                 │ anything else               answered by the journal

Nothing is called but models. A call of a tool is found by its name and arguments; one that the
journal cannot answer ends the run as `no_record`. Where nobody need be asked, it is answered as in
a dry run: an approval is approved, a wait brings null, outputs and findings are noted. What runs is
the code that a replay runs, too: the function, and what an agent makes its requests of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, assert_never

import msgspec
from msgspec.structs import asdict, replace

from engine import validation
from engine.agents.unit import OTHER_MODEL, Unit
from engine.app.actions import (
    Checkpoint,
    Observe,
    ReportFindings,
    RequestApproval,
    SendOutput,
    Sleep,
    StartEpisode,
    Step,
    Synthesize,
    ToolCall,
    WaitFor,
    fingerprint,
)
from engine.app.actor import Actor, Expectation
from engine.app.app import App
from engine.app.context import Findings
from engine.app.strategy import Function
from engine.episodes import dry_run, results
from engine.episodes.episode import NOW, Command, Performed, attempt_at, fold, overspent
from engine.errors import (
    CALL_TIMEOUT,
    BadHistory,
    BudgetExceeded,
    EpisodeFailed,
    StrategyError,
)
from engine.execution.driver import performed_unit
from engine.execution.report import reported
from engine.execution.steps import result_of, sent, shown_args
from engine.functions.begin import begin
from engine.functions.history import History
from engine.functions.result import conclusion
from engine.functions.run import OWN_TIMEOUT, Rest
from engine.operations.lab_verdict import (
    DONE,
    LabEnd,
    LabVerdict,
    cost_of,
    differences,
    end_of,
    first_divergence,
    recorded_end,
)
from engine.operations.replay import expectation_of, load
from engine.outputs.keys import inline_key
from engine.runtime.gather import gather_bounded
from engine.spending.prices import Prices
from engine.usercode.call import call
from engine.usercode.cancel_scope import Canceled, CancelScope
from engine.usercode.wall_time import WallTime
from engine.validation import Duration
from streams.clock import Clock, SystemClock
from streams.json import JsonObject, raw
from streams.model.events import (
    AGAIN,
    EpisodeConverged,
    EpisodeOpened,
    EpisodeStarted,
    LogEvent,
    StepAnnounced,
    StepKind,
    StepRecorded,
    StoredResult,
)
from streams.model.findings import Finding, FindingIntent
from streams.model.money import NO_USD
from streams.model.triggers import Grant
from streams.ports.log import Recorded
from streams.subjects import stack_of

EPISODE_S_MAX: Final = 900.0
"""Longest that one episode may take in a lab, in seconds."""

IN_FLIGHT: Final = 4
"""How many episodes are run at a time."""

IN_FLIGHT_MAX: Final = 64

NO_RECORD: Final = "no_record"
"""End of a run in the lab that asks for what the journal cannot answer."""

TOO_LONG: Final = "lab_timeout"

ARGS_CHARS_MAX: Final = 200
"""Most characters of arguments that an error shows."""

_CLOCK: Final = SystemClock()


async def lab(
    records: Sequence[Recorded],
    app: App,
    *,
    model: str = "",
    asks_all: bool = False,
    defined: Iterable[Actor] = (),
) -> LabVerdict:
    """Run a recorded episode with today's code, asking models anew, and return what differs.

    Nothing else is called: the journal answers for tools, people and other episodes. It also
    answers a request to a model that is the same as the recorded one.

    Args:
        records: the journal of an episode that has ended, as `load` returns it.
        app: with the actor and the expectation of the episode.
        model: what every agent asks instead of its own model, such as `openai:gpt-5`.
        asks_all: make each request, also where the recorded one is the same.
        defined: actors made from definitions, as for `replay`.

    Raises:
        BadHistory: there is no such expectation or it is a class, or the journal has no episode
            that has ended.
    """
    episode = fold(records)
    if episode.opened is None:
        raise BadHistory("it is of no episode: nothing in it was opened")
    opened, actors = episode.opened, {**{each.id: each for each in defined}, **app.actors}
    expectation = expectation_of(opened, actors)
    if not isinstance(expectation.strategy, Function):
        raise BadHistory(
            f"{opened.actor_id}.{opened.expectation_id} is a class: only functions run agents"
        )
    life = _last_life(records)
    then = recorded_end(episode, life)
    steps = [each for each in life if isinstance(each, StepRecorded)]
    turns = LabTurns(
        opened,
        app,
        actors[opened.actor_id],
        RecordedAnswers(steps),
        asks_all,
        granted=episode.granted,
    )
    other = OTHER_MODEL.set(model)
    try:
        now = await _ended(turns, expectation, stack=stack_of(records[0].subject).name)
    finally:
        OTHER_MODEL.reset(other)
    return LabVerdict(
        episode_id=opened.episode_id,
        actor_id=opened.actor_id,
        expectation_id=opened.expectation_id,
        differences=differences(then, now),
        divergence=first_divergence(steps, turns.made),
        then=cost_of(steps),
        now=cost_of(turns.made),
        asked=turns.asked,
    )


async def lab_each(
    histories: Mapping[str, bytes],
    app: App,
    *,
    model: str = "",
    asks_all: bool = False,
    in_flight: int = IN_FLIGHT,
    on_verdict: Callable[[str, LabVerdict], None] | None = None,
    defined: Mapping[str, Actor] | None = None,
) -> dict[str, LabVerdict]:
    """Run several histories, each under a name, as `lab` does; return their verdicts.

    Args:
        in_flight: how many are run at a time, from 1 to 64.
        defined: name of a history → its actor, as a definition makes it.
        on_verdict: called with each name and verdict, as soon as there is one.

    Raises `BadHistory` for the first that cannot be run; the message begins with its name.
    """

    async def one(name: str) -> LabVerdict:
        try:
            verdict = await lab(
                load(histories[name]),
                app,
                model=model,
                asks_all=asks_all,
                defined=[actors[name]] if name in actors else (),
            )
        except BadHistory as error:
            raise BadHistory(f"{name}: {error}") from error
        if on_verdict is not None:
            on_verdict(name, verdict)
        return verdict

    actors, at_once = defined or {}, max(1, min(in_flight, IN_FLIGHT_MAX))
    found = await gather_bounded(one, histories, in_flight_max=at_once)
    return dict(zip(histories, found, strict=True))


def _last_life(records: Iterable[Recorded]) -> Sequence[LogEvent]:
    """Return what an episode did since it last began anew."""
    events = [event for record in records for event in record.commit.events]
    anew = [n for n, e in enumerate(events) if isinstance(e, EpisodeStarted) and e.fresh]
    return events[anew[-1] if anew else 0 :]  # guard: lab-of-last-life


async def _ended(turns: LabTurns, expectation: Expectation, *, stack: str) -> LabEnd:
    opened = turns.opened

    def ended(end: str, detail: str = "", *, converged: EpisodeConverged | None = None) -> LabEnd:
        return end_of(
            opened,
            end,
            detail=detail,
            reported=turns.reported,
            sent=turns.sent,
            converged=converged,
        )

    wall = WallTime(_CLOCK, turns.scope, limit_s=EPISODE_S_MAX, used_s=0.0)
    try:
        run, ctx = await begin(expectation, History(), opened, turns, stack=stack)
        work = run.to_the_end(ctx, opened.trigger)
        with wall.counting():
            returned = await turns.scope.run(work, name=f"lab of {opened.episode_id}")
        assert not isinstance(returned, Rest), "every pause is answered at once"
        converged = await call(conclusion, returned)
    except _NoRecord as lacking:
        return ended(NO_RECORD, str(lacking))
    except Canceled:
        return ended(TOO_LONG, f"it took over {EPISODE_S_MAX:g} s")
    except EpisodeFailed as failed:
        return ended(failed.error_class, failed.detail)
    except StrategyError as error:
        return ended(error.error_class, str(error))
    apart = None if converged is None else dry_run.set_apart(converged, opened)
    return ended(DONE, converged=apart)


class _NoRecord(Exception):
    """The strategy asks for what the journal cannot answer."""


class RecordedAnswers:
    """What an episode was answered, found by what it had asked for."""

    def __init__(self, steps: Iterable[StepRecorded]) -> None:
        """Give each answer once, in order; then the last one again."""
        self._steps = tuple(steps)
        self._left: dict[str, list[StepRecorded]] = {}
        """Fingerprint → the answers that nobody has got yet."""
        self._given: dict[str, list[StepRecorded]] = {}
        for step in self._steps:
            # What failed and was repeated has a later answer, and an agent is run anew.
            # guard: lab-last-attempt
            if not step.retry_s and step.kind is not StepKind.AGENT:
                self._left.setdefault(step.fingerprint, []).append(step)
        self.times = deque(
            msgspec.json.decode(step.result, type=datetime)
            for step in self._steps
            if step.kind is StepKind.OBSERVATION and step.tool_name == NOW
        )

    def find(self, mark: str, path: str, *, name: str = "") -> StepRecorded | None:
        """Return the answer to what has the fingerprint `mark`; None: there is none.

        Of several, that at `path`, else the first that nobody has got. `name`: of the step, where
        fingerprints of another name do not count.
        """
        left = [each for each in self._left.get(mark, ()) if name in {"", each.tool_name}]
        if not left:
            given = [each for each in self._given.get(mark, ()) if name in {"", each.tool_name}]
            return given[-1] if given else None
        found = next((each for each in left if attempt_at(each.path)[0] == path), left[0])
        self._left[mark].remove(found)
        self._given.setdefault(mark, []).append(found)
        return found

    def within(self, path: str) -> Iterator[StepRecorded]:
        """Yield what was done within the call at `path`."""
        return (each for each in self._steps if each.path.startswith(f"{path}."))


class _RecordedTime(SystemClock):
    """The times that the journal has, in order; then the last one again."""

    def __init__(self, times: deque[datetime]) -> None:
        self._times, self._last = times, times[0] if times else _CLOCK.now()

    def now(self) -> datetime:
        """Return the next recorded time."""
        if self._times:
            self._last = self._times.popleft()
        return self._last


@dataclass
class LabTurns:
    """Turns that call nothing but models. None of them has a tool at hand: the journal answers."""

    opened: EpisodeOpened
    app: App
    actor: Actor
    answers: RecordedAnswers
    asks_all: bool
    granted: Grant
    """What people have granted beyond its budget: all of it, from the start."""
    asked: int = 0
    """Requests that a model has answered."""
    made: list[Performed] = field(default_factory=list)
    """What was done, in order."""
    reported: list[FindingIntent] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)
    """Adapter and key of each output that was sent before the end."""
    scope: CancelScope = field(default_factory=lambda: CancelScope(_CLOCK))
    waits_for_people: bool = False
    holds_sleeps: bool = False

    def __post_init__(self) -> None:
        self.clock: Clock = _RecordedTime(self.answers.times)

    @property
    def findings(self) -> Findings:
        """What the journal has of findings."""
        return self

    @property
    def steps_recorded(self) -> int:
        """How many steps there are so far."""
        return len(self.made)

    async def get(self, key: str) -> Finding | None:
        """Return what was read of a finding."""
        return _finding(self._read("get", {"key": key}))

    async def recent(self, key: str, within: Duration) -> Finding | None:
        """Return what was read of a recent finding."""
        return _finding(self._read("recent", {"key": key, "within": within}))

    async def active(self, **wanted: object) -> Sequence[Finding]:
        """Return what was read of active findings."""
        args = {name: value for name, value in wanted.items() if value is not None}
        return msgspec.json.decode(self._read("active", args), type=tuple[Finding, ...])

    def _read(self, action: str, args: JsonObject) -> msgspec.Raw:
        recorded = self.answers.find(fingerprint(ToolCall("findings", action, args)), "")
        if recorded is None:
            raise _NoRecord(_told(f"findings.{action}", raw(args)))
        if recorded.error_class:
            raise ValueError(recorded.error_detail)
        return recorded.result

    def shown(self, action: ToolCall) -> msgspec.Raw:
        """Return the arguments of a call as people may see them."""
        return shown_args(action, self.app.tool(self.actor, action.capability, action.action))

    def check(self, *, begun: int) -> None:
        """Raise `BudgetExceeded` where the episode would; its time is not what the lab takes."""
        turns = begun + sum(AGAIN not in each.path for each in self.made)
        tokens = sum(each.cost_tokens for each in self.made)
        usd = sum((each.cost_usd or NO_USD for each in self.made), NO_USD)
        budget = self.granted.beyond(self.opened.budget)
        # guard: lab-within-budget
        if spent := overspent(budget, turns=turns, tokens=tokens, wall_s=0.0, usd=usd):
            raise spent

    def note_replayed(self, action: Step, result: object) -> None:
        """Nothing is kept for people."""

    def request_for(self, exceeded: BudgetExceeded) -> None:
        """Nobody is asked for more."""

    async def take(
        self, action: Step, mark: str, *, path: str, also: Sequence[Command] = ()
    ) -> Performed:
        """Answer `action` out of the journal, or as a dry run does."""
        del also
        if isinstance(action, Sleep) and AGAIN in path:  # A provider asks for patience.
            await _CLOCK.sleep(action.seconds)
            return replace(dry_run.answer_to(action), path=path)
        key = self._noted(action, path)
        recorded = self.answers.find(mark, path)
        made = self._unrecorded(action, mark, key) if recorded is None else _again(recorded)
        return self._kept(made, path)

    def _noted(self, action: Step, path: str) -> str:
        """Note what is compared of an output or a report; return the key of an output."""
        match action:
            case ReportFindings(findings=findings):
                self.reported += findings
            case SendOutput(intent=intent):
                key = inline_key(action, self.opened, turn=path)
                self.sent.append((intent.adapter, key))
                return key
            case _:
                pass
        return ""

    def _unrecorded(self, action: Step, mark: str, key: str) -> Performed:
        """Answer what the journal cannot, where nothing outside is needed for it."""
        match action:
            case ToolCall():
                raise _NoRecord(_told(f"{action.capability}.{action.action}", self.shown(action)))
            case Synthesize():
                raise _NoRecord(_told("the synthesizer", raw(action.prompt)))
            case StartEpisode(actor=actor, expectation=expectation):
                raise _NoRecord(_told(f"{actor}.{expectation}", raw(action.payload)))
            case Observe(data=data):
                kept = validation.encode(data, what="observation")
                return Performed(kind=StepKind.OBSERVATION, fingerprint=mark, result=kept)
            case Checkpoint():
                return Performed(kind=StepKind.CHECKPOINT, fingerprint=mark)
            case RequestApproval() | WaitFor() | Sleep():
                return dry_run.answer_to(action)
            case SendOutput(intent=intent):
                has_adapter = intent.adapter in self.app.outputs
                return sent(action, result_of(dry_run.undelivered(key, has_adapter=has_adapter)))
            case ReportFindings(findings=findings):
                return reported(findings, [*map(dry_run.left_out, findings)], mark=mark)
            case _:
                assert_never(action)

    def start_child(
        self, action: StartEpisode, mark: str, *, path: str, group: str, begun: int
    ) -> Performed:
        """Return the recorded end of a child, which is not started."""
        del group, begun
        recorded = self.answers.find(mark, path)
        made = self._unrecorded(action, mark, "") if recorded is None else _again(recorded)
        return self._kept(made, path)

    async def make(self, unit: Unit, *, path: str) -> Performed:
        """Make a request to a model, unless it is the recorded one; nothing else is made."""
        recorded = self.answers.find(unit.mark, path, name=unit.name)
        if unit.kind is StepKind.MODEL_REQUEST:  # guard: lab-calls-models-alone
            # guard: lab-same-request-recorded
            if recorded is None or recorded.error_class or self.asks_all:
                return await self._asked(unit, path)
        elif recorded is None:
            raise _NoRecord(_told(unit.name, unit.args))
        else:  # The models that were asked within it are not asked again.
            for each in self.answers.within(recorded.path):
                self.made.append(_again(each, path=f"{path}{each.path[len(recorded.path) :]}"))
        return self._kept(_again(recorded), path)

    async def _asked(self, unit: Unit, path: str) -> Performed:
        started_s = _CLOCK.monotonic_s()
        made = await unit.make("", None)
        self.asked += 1
        cost_ms = round((_CLOCK.monotonic_s() - started_s) * 1000)
        key = f"{self.opened.episode_id}:{path}"
        step = performed_unit(
            unit, made, path=path, key=key, cost_ms=cost_ms, prices=Prices(self.app.prices)
        )
        self.made.append(step)
        return step

    async def keep(self, performed: Performed) -> None:
        """Note the end of an agent."""
        self.record(performed)

    def time_out(self, action: Step, *, path: str) -> Performed:
        """Answer that a timeout of the function's own has cut `action` off."""
        mark = fingerprint(action)
        cut_off = Performed(
            kind=StepKind.OBSERVATION,
            fingerprint=mark,
            error_class=CALL_TIMEOUT,
            error_detail=OWN_TIMEOUT,
        )
        return self._kept(cut_off, path)

    async def fetch(self, stored: StoredResult) -> msgspec.Raw:
        """Fail: a history has all results itself."""
        return await results.out_of_reach(stored)

    async def settle(self, path: str = "") -> None:
        """Nothing is written."""

    def record(self, *commands: Command) -> None:
        """Note what is done in an instant, such as reading the time."""
        self.made += [
            each
            for each in commands
            if isinstance(each, Performed) and each.kind is not StepKind.AGENT
        ]

    def announced_at(self, path: str) -> StepAnnounced | None:
        """Return None: nothing is announced."""
        del path
        return None

    def _kept(self, step: Performed, path: str) -> Performed:
        kept = replace(step, path=path)
        self.made.append(kept)
        return kept


def _finding(recorded: msgspec.Raw) -> Finding | None:
    return msgspec.json.decode(recorded, type=Finding | None)


_PERFORMED: Final = frozenset(Performed.__struct_fields__)


def _again(step: StepRecorded, *, path: str | None = None) -> Performed:
    """Return a recorded step as if it had been done just now."""
    said = {name: value for name, value in asdict(step).items() if name in _PERFORMED}
    made = Performed(**said)
    return made if path is None else replace(made, path=path)


def _told(name: str, args: msgspec.Raw) -> str:
    said = bytes(args).decode()
    short = said if len(said) <= ARGS_CHARS_MAX else f"{said[:ARGS_CHARS_MAX]}…"
    return f"{name} {short}"
