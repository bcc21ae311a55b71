"""What must hold of episodes by functions, whose calls have paths.

Steps of two branches may begin before either is recorded, so the number of a step says nothing of
a call. Its path does, which is a part of its key.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from engine.episodes.episode import attempt_at
from engine.errors import EpisodeFailed, NondeterministicReplay
from engine.functions.history import CHANGED
from engine.operations.replay import replay
from streams.json import unraw
from streams.model.events import EpisodeStarted, StepAnnounced, StepRecorded
from tests.simulation import calling, deploying
from tests.simulation.evidence import Breaches, Evidence, Life, Placed, episode_id_of, readable
from tests.simulation.outside import Call, Ledger, Outside
from vigil import App

PAID: Final = {**calling.PAID, **dict.fromkeys(deploying.EXPECTATIONS, (1, 1))}

EFFECTS: Final = frozenset({"pay", "mail", "poke"})


def functional(evidence: Evidence) -> Iterator[Life]:
    """Yield the episodes by functions."""
    return (each for each in evidence.lives.values() if is_functional(each))


def is_functional(life: Life) -> bool:
    return life.opened.actor_id in {*calling.ACTORS, deploying.ACTOR}


def path_of(call: Call) -> str:
    """Return the path of a call's first attempt; only functions have any."""
    return call.key.split(":")[1]


def calls_of(evidence: Evidence) -> Iterator[tuple[Life, Call]]:
    for call in evidence.history.ledger.calls:
        if is_functional(life := evidence.lives[call.episode_id]):
            yield life, call


def an_event_has_the_episode_that_its_function_promises(evidence: Evidence) -> Breaches:
    for function in calling.FUNCTIONS:
        name = function.__name__
        wanted = {
            episode_id_of(event, actor=calling.ACTOR, expectation=name)
            for event in readable(evidence, f"sim.{name}")
        }
        found = {life.id for life in evidence.of(name)}
        yield from (f"{id_} ({name}) is missing, or too much" for id_ in wanted ^ found)


def a_path_is_recorded_once(evidence: Evidence) -> Breaches:
    for life in functional(evidence):
        times = Counter(placed.event.path for placed in life.of(StepRecorded))
        yield from (f"{life.id}: {path} {n} times" for path, n in times.items() if n > 1)


def a_recorded_call_is_never_made_again(evidence: Evidence) -> Breaches:
    """A call may come after its record only from one who began before it, and did not write it."""
    for life, call in calls_of(evidence):
        record = _last_at(life, path_of(call))
        if record is None or record.seq > call.head:
            continue
        began = [
            placed
            for placed in life.of(EpisodeStarted)
            if placed.event.node == call.node and placed.seq <= call.head
        ]
        writer_id = record.commit_id.rpartition("-")[0]
        is_writer = began and began[-1].commit_id.startswith(f"{writer_id}-")
        if not began or began[-1].seq > record.seq or is_writer:
            yield f"{call} though recorded at {record.seq}"


def _last_at(life: Life, path: str) -> Placed[StepRecorded] | None:
    """Return the record after which the call at `path` is not made again; None: there is none."""
    found = [p for p in life.of(StepRecorded) if attempt_at(p.event.path)[0] == path]
    attempts = [placed for placed in found if placed.event.tool_name]
    return attempts[-1] if attempts and not attempts[-1].event.retry_s else None


def an_effect_is_announced_before_it_happens(evidence: Evidence) -> Breaches:
    for life, call in calls_of(evidence):
        announced = [
            placed
            for placed in life.of(StepAnnounced)
            if attempt_at(placed.event.path)[0] == path_of(call)
            and placed.event.idempotency_key == call.key
            and placed.seq <= call.head
        ]
        if call.tool in EFFECTS and not announced:
            yield f"{call}: not announced with its key"


def a_path_has_one_key(evidence: Evidence) -> Breaches:
    """But for a read that was not recorded, where the other code makes another call."""
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    for life, call in calls_of(evidence):
        if life.opened.actor_id != deploying.ACTOR or call.tool in EFFECTS:
            keys[life.id, path_of(call)].add(call.key)
    yield from (f"{place}: {used}" for place, used in keys.items() if len(used) > 1)


def what_must_not_be_repeated_is_not(evidence: Evidence) -> Breaches:
    mails = Counter(call.key for _, call in calls_of(evidence) if call.tool == "mail")
    yield from (f"{key} called {times} times" for key, times in mails.items() if times > 1)


def the_outside_has_each_payment_once(evidence: Evidence) -> Breaches:
    """Under as many keys as the function has payments; no episode that is done lacks one."""
    paid: dict[str, set[str]] = defaultdict(set)
    for life, call in calls_of(evidence):
        if call.tool == "pay":
            paid[life.id].add(call.key)
    for life in functional(evidence):
        least, most = PAID[life.opened.expectation_id]
        is_done = life.finished is not None and life.finished.status.value == "done"
        if len(paid[life.id]) > most or (is_done and len(paid[life.id]) < least):
            yield f"{life.id}: paid under {paid[life.id]}"


def each_path_is_fed_with_its_own_record(evidence: Evidence) -> Breaches:
    """As the function noted it, which may have run in several nodes, one part after the other."""
    for life in functional(evidence):
        if life.converged is None:
            continue
        recorded = {}
        for step in (placed.event for placed in life.of(StepRecorded)):
            result = unraw(step.result)
            if step.path.startswith(CHANGED) or not isinstance(result, dict):
                continue
            if result.get("value") is not None:
                recorded[attempt_at(step.path)[0]] = result["value"]
        said = unraw(life.converged.classification)
        if said["heard"] != recorded:
            yield f"{life.id}: heard {said['heard']}, its journal has {recorded}"


def a_replay_goes_the_way_that_was_recorded(evidence: Evidence) -> Breaches:
    lives = list(functional(evidence))
    yield from asyncio.run(_replayed(lives)) if lives else ()


async def _replayed(lives: Sequence[Life]) -> list[str]:
    found = []
    for life in lives:
        differ = [error for app in _APPS if (error := await _how_it_differs(life, app))]
        if len(differ) == len(_APPS):
            found.append(f"{life.id}: {differ[0]!r}")
    return found


async def _how_it_differs(life: Life, app: App) -> Exception | None:
    try:
        await replay(life.records, app)
    except (EpisodeFailed, NondeterministicReplay) as error:
        return error
    return None


def _app(*, old: bool) -> App:
    """Return an app whose tools are not called."""
    nowhere = Outside(wire=None, ledger=Ledger())  # type: ignore[arg-type]
    return App(
        actors=[*calling.callers(), *deploying.actors(old=old)],
        tools={**calling.tools_in(nowhere), **deploying.tools_in(nowhere, old=old)},
    )


_APPS: Final = [_app(old=True), _app(old=False)]

INVARIANTS: Final[Sequence[Callable[[Evidence], Breaches]]] = (
    an_event_has_the_episode_that_its_function_promises,
    a_path_is_recorded_once,
    a_recorded_call_is_never_made_again,
    an_effect_is_announced_before_it_happens,
    a_path_has_one_key,
    what_must_not_be_repeated_is_not,
    the_outside_has_each_payment_once,
    each_path_is_fed_with_its_own_record,
    a_replay_goes_the_way_that_was_recorded,
)
