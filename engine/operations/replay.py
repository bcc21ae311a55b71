"""Golden histories: recorded journals that today's strategies must still be able to replay.

A node that takes over an episode replays its journal, so a strategy that was changed while episodes
run must ask for the same steps as before. To check that before a deployment, keep the journals of
some episodes beside the code and replay them in CI:

    async with connect(url, stack=stack) as ports:        # once, by hand
        Path("histories/checked.jsonl").write_bytes(await record(ports, episode_id))

    async def test_episodes_that_run_survive_the_next_release():
        await replay(load(Path("histories/checked.jsonl").read_bytes()), app)

A history is JSON lines, one per commit, oldest first, with the events as on the wire, so it stays
readable as long as journals of its age. The first request that an agent makes has all of that
agent, and those that it makes so again refer to it. It contains results unredacted: protect it
accordingly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NoReturn

import msgspec
from msgspec.structs import replace

from engine.agents.unit import Unit
from engine.app.actions import (
    Action,
    Converge,
    Done,
    OfAgent,
    StartEpisode,
    Step,
    ToolCall,
    fingerprint,
)
from engine.app.actor import Actor, Expectation
from engine.app.app import App
from engine.app.context import Findings
from engine.app.strategy import Function
from engine.episodes import recovery, results
from engine.episodes.episode import UNOPENED, Command, Episode, Performed, Status, evolve, fold
from engine.errors import BadHistory, BudgetExceeded, EpisodeFailed, NondeterministicReplay
from engine.execution.steps import shown_args
from engine.functions.begin import begin
from engine.functions.history import history_of
from engine.functions.place import place_of_call
from engine.functions.result import conclusion
from engine.functions.run import Rest
from engine.usercode.cancel_scope import CancelScope
from engine.validation import Duration
from streams.clock import Clock, SystemClock
from streams.errors import BadName, UnreadableEvent
from streams.json import NOTHING, UNDECODABLE
from streams.model.events import (
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeEvent,
    EpisodeOpened,
    KeptJson,
    LogEvent,
    StepAnnounced,
    StepRecorded,
    StoredResult,
)
from streams.ports.all import Ports
from streams.ports.log import Recorded
from streams.ports.objects import ObjectStore
from streams.subjects import stack_of
from streams.wire import codec

_NOTHING: Final = EpisodeConverged()

COMMITS_MAX: Final = 100_000
"""Most commits of one history; no episode has more."""


_encoder = msgspec.json.Encoder()


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="commit@1"):
    """One commit of a history. As for events, a tag never changes its meaning."""

    subject: str
    seq: int
    id: str
    trace: str = ""
    commit: msgspec.Raw
    """The message's body."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One event, and the episode after it."""

    number: int
    """1 for the first."""
    seq: int
    """Of the commit that holds it."""
    at: datetime
    event: EpisodeEvent
    episode: Episode


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    episode: Episode
    """The episode after all events."""
    state: Any
    """The strategy's state after the last recorded step."""
    steps: int
    """The replayed steps: all since the strategy last restarted."""
    asks: Action | OfAgent | None
    """What the strategy asks for next; None if it fails there, as the history does."""
    place: str = ""
    """The line of a function that asks for it, if that is no record: `checks.py:12, in disk`."""
    other_values: str = ""
    """How the first call differs that a record with other values has answered; empty: none does."""


_decoder: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


def frames(records: Iterable[Recorded]) -> Iterator[Frame]:
    """Yield every event in an episode's `records`, with the state after it."""
    episode, number = UNOPENED, 0
    for record in records:
        for event in record.commit.events:
            if isinstance(event, EpisodeEvent):
                number, at = number + 1, record.commit.at
                episode = evolve(episode, event)
                yield Frame(number=number, seq=record.seq, at=at, event=event, episode=episode)


async def record(ports: Ports, episode_id: str) -> bytes:
    """Return the history of an episode up to now, with large results.

    Raises:
        BadHistory: the journal has no such episode, or the object store not all of its results.
    """
    records = await ports.log.read(ports.stack.episode(episode_id))
    if not records:
        raise BadHistory(f"the journal holds no episode {episode_id}")
    try:
        whole = [await _with_results(each, ports.objects) for each in records]
    except EpisodeFailed as lost:
        raise BadHistory(str(lost)) from lost
    whole = _in_first(whole, await _agents_in(whole, ports.objects))
    return b"".join(_encoder.encode(_line(each)) + b"\n" for each in whole)


async def _with_results(recorded: Recorded, objects: ObjectStore) -> Recorded:
    """Return a commit with the results that are in the object store in their places."""
    events = [
        await _with_result(event, objects) if isinstance(event, StepRecorded) else event
        for event in recorded.commit.events
    ]
    return replace(recorded, commit=replace(recorded.commit, events=tuple(events)))


async def _with_result(step: StepRecorded, objects: ObjectStore) -> StepRecorded:
    if step.stored is not None:  # guard: history-has-large-results
        result = await results.fetch(objects, step.stored)
        step = replace(step, result=result, stored=None)
    return step


async def _agents_in(
    records: Iterable[Recorded], objects: ObjectStore
) -> Mapping[str, msgspec.Raw]:
    """Return the agents that requests refer to, by their digests, but those that are lost."""
    found: dict[str, msgspec.Raw] = {}
    for stored in _named_in(records):
        # Only an agent that is to stay as it was is needed.
        with suppress(EpisodeFailed):
            found[stored.digest] = await results.fetch(objects, stored)
    return found


def _named_in(records: Iterable[Recorded]) -> Collection[StoredResult]:
    """Return which agents requests refer to, each once."""
    events = (event for each in records for event in each.commit.events)
    prompts = (event.prompt for event in events if isinstance(event, StepRecorded))
    agents = (each.agent for each in prompts if each is not None)
    named = (each.stored for each in agents if each is not None and each.stored is not None)
    return {each.digest: each for each in named}.values()


def _in_first(records: Iterable[Recorded], agents: Mapping[str, msgspec.Raw]) -> list[Recorded]:
    """Return `records` with each of `agents` in the first request that refers to it."""
    left = dict(agents)

    def put(agent: KeptJson) -> KeptJson:
        digest = agent.stored.digest if agent.stored is not None else ""
        return replace(agent, json=left.pop(digest, agent.json))  # guard: history-has-agents

    return _with_agents(records, put)


def _in_all(records: Iterable[Recorded]) -> list[Recorded]:
    """Return `records` with the agents that the first requests have in all that refer to them."""
    known: dict[str, msgspec.Raw] = {}

    def put(agent: KeptJson) -> KeptJson:
        if agent.stored is None:
            return agent
        if agent.json != NOTHING:
            known[agent.stored.digest] = agent.json
        json = known.get(agent.stored.digest)
        return agent if json is None else KeptJson(json=json)

    return _with_agents(records, put)


def _with_agents(
    records: Iterable[Recorded], changed: Callable[[KeptJson], KeptJson]
) -> list[Recorded]:
    """Return `records` with what is kept of the agents of requests `changed`, in their order."""

    def of(event: LogEvent) -> LogEvent:
        if not isinstance(event, StepRecorded) or event.prompt is None:
            return event
        agent = event.prompt.agent
        kept = None if agent is None else changed(agent)
        return event if kept is agent else replace(event, prompt=replace(event.prompt, agent=kept))

    return [
        replace(each, commit=replace(each.commit, events=tuple(map(of, each.commit.events))))
        for each in records
    ]


def load(data: bytes) -> Sequence[Recorded]:
    """Return the commits of a history that `record` returned.

    Raises:
        BadHistory: it is invalid, or of a newer version; the message names the line.
    """
    lines = data.splitlines()
    if len(lines) > COMMITS_MAX:
        raise BadHistory(f"{len(lines):,} lines; at most {COMMITS_MAX:,} are an episode's")
    return _in_all(_recorded(line, number=number) for number, line in enumerate(lines, start=1))


async def replay(
    records: Sequence[Recorded],
    app: App,
    *,
    defined: Iterable[Actor] = (),
    remedy: str = "",
    is_strict: bool = False,
) -> Replayed:
    """Replay a recorded journal with today's strategy from its beginning, without side effects.

    Recorded results replace tools, synthesizers and the outside. `init` is called only if no state
    was recorded, and `converge`, which may read the outside, never.

    Args:
        app: with the actor and the expectation of the episode.
        defined: actors made from definitions by `to_actor` with the app. As on a node, actors in
            the app's code win over them.
        remedy: what `NondeterministicReplay` tells people to do; by default, what to do about
            episodes of an earlier version of the code.
        is_strict: whether the values of all calls must be the recorded ones, also where the
            expectation is lenient.

    Raises:
        NondeterministicReplay: the strategy asks for something other than what was recorded; a
            node would park the episode.
        EpisodeFailed: it fails where the history does not, or in another way.
        BadHistory: there is no such expectation, or the history has no episode.
    """
    episode = fold(records)
    if episode.opened is None:
        raise BadHistory("it is of no episode: nothing in it was opened")
    stack = stack_of(records[0].subject)
    actors = {**{actor.id: actor for actor in defined}, **app.actors}  # guard: history-code-first
    expectation = expectation_of(episode.opened, actors, is_strict=is_strict)
    is_strict = expectation.replay == "strict"
    is_of_class = not isinstance(expectation.strategy, Function)
    history, opened = history_of(records, is_whole=is_of_class), episode.opened
    turns = _ReplayTurns(episode, app, actors[opened.actor_id])
    run, ctx = await begin(
        expectation, history, opened, turns, stack=stack.name, remedy=remedy, converges=False
    )
    asks: Action | OfAgent | None = None
    place = ""
    try:
        work = run.to_the_end(ctx, opened.trigger)
        ended = await turns.scope.run(work, name=f"replay of episode {opened.episode_id}")
        asks = _asked_at_the_end(ended, episode, is_strict=is_strict)
    except _WentLive as live:
        _check_not_over(episode, asks=f"{live}")
        _check_waits(episode, live.action, is_strict=is_strict)
        asks, place = live.action, live.place
    except EpisodeFailed as failed:
        if failed.error_class == NondeterministicReplay.error_class:
            raise NondeterministicReplay(failed.detail) from failed
        if not (run.has_replayed and _failed_as(episode, failed)):
            raise
    steps = len(history.steps)
    return Replayed(
        episode=episode,
        state=run.state,
        steps=steps,
        asks=asks,
        place=place,
        other_values=run.other_values,
    )


def _asked_at_the_end(ended: object | Rest, episode: Episode, *, is_strict: bool) -> Action:
    """Return what a strategy asks for last; `NondeterministicReplay`: the journal has another."""
    blocked = _waited(episode)
    if isinstance(ended, Rest):
        _check_not_over(episode, asks=recovery.kind_of(ended.action))
        _check_waits(episode, ended.action, is_strict=is_strict)
        return ended.action
    if blocked is not None:  # guard: replay-waits-as-recorded
        was = recovery.text_of_step(blocked)
        raise NondeterministicReplay(f"call {blocked.path} was {was}; the replay ends without it")
    has_ended = isinstance(ended, Converge) or conclusion(ended) is not None
    if has_ended and _is_done_without_result(episode):
        raise NondeterministicReplay("it was done; the replay has a result")
    if not has_ended and _has_converged(episode) and not _has_nothing(episode.converged):
        raise NondeterministicReplay("it converged; the replay returns nothing")
    return Converge() if has_ended else Done()


def _check_waits(episode: Episode, action: Step | OfAgent, *, is_strict: bool) -> None:
    """Raise `NondeterministicReplay` if an episode that waits is to do something else."""
    blocked = _waited(episode)
    if blocked is None or (blocked.for_children and isinstance(action, StartEpisode)):
        return  # A child is announced, or recorded: both were compared.
    recovery.check_same(blocked, asked=fingerprint(action), action=action, is_strict=is_strict)


def _waited(episode: Episode) -> EpisodeBlocked | None:
    """Return what the strategy of an episode waits for; None: nothing that it has asked for."""
    blocked = episode.blocked if episode.status is Status.BLOCKED else None
    # guard: parked-no-own-wait
    if blocked is None or blocked.parked is not None or blocked.asks_for_grant:
        return None
    return blocked


def _check_not_over(episode: Episode, *, asks: str) -> None:
    if _has_converged(episode) or _is_done_without_result(episode):
        what = "it was done" if episode.converged is None else "it converged"
        raise NondeterministicReplay(f"{what}; the replay asks for {asks}")


def _failed_as(episode: Episode, failed: EpisodeFailed) -> bool:
    end = episode.finished
    return end is not None and end.error_class == failed.error_class


def _has_nothing(converged: EpisodeConverged | None) -> bool:
    return converged is None or replace(converged, wall_used_ms=0) == _NOTHING


class _WentLive(Exception):
    """The strategy asks for what is not recorded."""

    def __init__(self, action: Step | OfAgent) -> None:
        super().__init__(recovery.kind_of(action))
        self.action, self.place = action, place_of_call()


@dataclass(frozen=True)
class _ReplayTurns:
    """Turns that are not taken: the replay ends at the first of them."""

    episode: Episode
    app: App
    actor: Actor
    clock: Clock = SystemClock()  # noqa: RUF009 - it has no state
    waits_for_people: bool = True
    holds_sleeps: bool = False
    scope: CancelScope = field(default_factory=lambda: CancelScope(SystemClock()))

    @property
    def findings(self) -> Findings:
        return self

    @property
    def steps_recorded(self) -> int:
        return self.episode.steps_recorded

    async def get(self, key: str) -> NoReturn:
        raise _WentLive(ToolCall("findings", "get", {"key": key}))

    async def recent(self, key: str, within: Duration) -> NoReturn:
        raise _WentLive(ToolCall("findings", "recent", {"key": key, "within": within}))

    async def active(self, **wanted: object) -> NoReturn:
        raise _WentLive(ToolCall("findings", "active", wanted))

    def shown(self, action: ToolCall) -> msgspec.Raw:
        return shown_args(action, self.app.tool(self.actor, action.capability, action.action))

    def check(self, *, begun: int) -> None:
        """Nothing keeps a replay from going on."""

    def note_replayed(self, action: Step, result: object) -> None:
        """Nothing is kept for people."""

    def request_for(self, exceeded: BudgetExceeded) -> None:
        """Nobody is asked for more."""

    async def take(
        self, action: Step, mark: str, *, path: str, also: Sequence[Command] = ()
    ) -> NoReturn:
        del mark, path, also
        raise _WentLive(action)

    async def make(self, unit: Unit, *, path: str) -> NoReturn:
        del path
        raise _WentLive(OfAgent(unit.kind, unit.name))

    async def keep(self, performed: Performed) -> None:
        """Note nothing: the end of an agent follows from what it has done."""
        del performed

    def start_child(
        self, action: StartEpisode, mark: str, *, path: str, group: str, begun: int
    ) -> NoReturn:
        del mark, path, group, begun
        raise _WentLive(action)

    def time_out(self, action: Step, *, path: str) -> NoReturn:
        del path
        raise _WentLive(action)

    async def fetch(self, stored: StoredResult) -> msgspec.Raw:
        return await results.out_of_reach(stored)

    async def settle(self, path: str = "") -> None:
        """Nothing is written."""

    def record(self, *commands: Command) -> None:
        """Note nothing: what is recorded at once, such as the time, is not checked."""

    def announced_at(self, path: str) -> StepAnnounced | None:
        announced = (*self.episode.children.values(), *self.episode.announced)
        return next((each for each in announced if each.path == path), None)


def _has_converged(episode: Episode) -> bool:
    """Return whether the strategy made the result, and not `on_exhausted`."""
    # guard: exhausted-replay-asks-more
    return episode.converged is not None and not episode.converged.exhausted


def _is_done_without_result(episode: Episode) -> bool:
    return episode.status is Status.DONE and episode.converged is None


def expectation_of(
    opened: EpisodeOpened, actors: Mapping[str, Actor], *, is_strict: bool = False
) -> Expectation:
    """Return what an episode is of; `BadHistory`: none of `actors` has it.

    `is_strict`: as a strict one.
    """
    actor = actors.get(opened.actor_id)
    expectation = actor.expectations.get(opened.expectation_id) if actor else None
    if expectation is None:
        raise BadHistory(
            f"there is no expectation {opened.expectation_id!r} of an actor"
            f" {opened.actor_id!r}, which its episode is of"
        )
    return dataclasses.replace(expectation, replay="strict") if is_strict else expectation


def _line(recorded: Recorded) -> _Line:
    return _Line(
        subject=recorded.subject,
        seq=recorded.seq,
        id=recorded.commit.id,
        trace=recorded.commit.trace,
        commit=msgspec.Raw(codec.encode_commit(recorded.commit)),
    )


def _recorded(line: bytes, *, number: int) -> Recorded:
    try:
        said = _decoder.decode(line)
        stack_of(said.subject)
        return codec.decode_commit(
            bytes(said.commit),
            subject=said.subject,
            seq=said.seq,
            commit_id=said.id,
            trace=said.trace,
        )
    except (*UNDECODABLE, UnreadableEvent, BadName) as error:
        raise BadHistory(f"line {number}: {error}") from error
