"""Replays of journals: of recorded ones, before a change is deployed, and of those of a test.

    journal ──▶ replay ──▶ the same calls, and so "", or how they differ, with the line
                  └──▶ waits for what never comes, and so the lines that wait

A replay of a test happens at other times than the episode did (`LATER_S`), so that what is decided
by the clock differs; and it is bounded in turns of the event loop, in virtual and in real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.app.app import App
from engine.app.strategy import Function
from engine.errors import EngineError
from engine.functions.source import unreplayable_in
from engine.operations.replay import load, replay
from engine.usercode.leavable import awaited_by, place_in
from streams.clock import SystemClock
from vigil.testing.outside import Outside, OutsideCall
from vigil.testing.virtual_time import TURN_S, VirtualSelector

SUFFIX: Final = ".jsonl"
"""Of the files of recorded journals."""

HOUR_S: Final = 3_600.0

LATER_S: Final = (0.0, 11 * HOUR_S, 75 * HOUR_S, 4_700 * HOUR_S)
"""How much later a test replays an episode, in seconds: at once, at another time of day, on another
day of the week, and half a year later."""

TURNS_MAX: Final = 200_000
"""Most turns of the event loop of one replay in which somebody can always go on. Ten thousand calls
take about 50,000."""

LOOK_TURNS: Final = 1_000
"""After so many turns it is looked how much real time has passed."""

VIRTUAL_S_MAX: Final = 120.0
"""Longest that a replay may wait for time to pass, in virtual seconds: as long as an episode may
run by default."""

REAL_S_MAX: Final = 60.0
"""Longest real time of one replay, in seconds."""

STEP_S_MIN: Final = 0.02

HINTS_MAX: Final = 8
"""Most places of the source that one message names."""

REMEDY: Final = "nothing was changed here, so the function is not the same each time"


_real: Final = SystemClock()


class StuckReplay(AssertionError):
    """A replay did not come to its end."""


async def replay_histories(folder: str | Path, app: App) -> int:
    """Replay every journal in `folder` with `app`, and return how many there are.

    They are files `*.jsonl`, as `vigil.histories.record` makes them. Nothing outside is called.

    Raises `AssertionError`, which names each file that cannot be replayed and why, or if `folder`
    has none.
    """
    journals = _read(Path(folder))
    assert journals, f"there is no recorded journal, no *{SUFFIX}, in {folder}"
    checked = {name: await problem_of(data, app) for name, data in journals.items()}
    problems = [f"{name}: {why}" for name, why in checked.items() if why]
    if problems:  # guard: stuck-journal-fails-gate
        told = "\n".join(["these could not go on with the code of today:", *problems])
        raise AssertionError(told)
    return len(journals)


def _read(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob(f"*{SUFFIX}"))}


async def problem_of(journal: bytes, app: App, *, remedy: str = "", is_strict: bool = False) -> str:
    """Return why a node would park an episode with `journal`; empty: it goes on.

    `is_strict`: the values of all calls must be the recorded ones, as where nothing was changed.
    """
    try:
        # guard: kit-difference-without-change
        await replay(load(journal), app, remedy=remedy, is_strict=is_strict)
    except EngineError as error:
        return f"{type(error).__name__}: {error}"
    return ""


async def _place(journal: bytes, app: App) -> str:
    try:
        return (await replay(load(journal), app)).place
    except EngineError:
        return ""


def in_lines(problems: Mapping[str, str]) -> list[str]:
    """Return `problems` of episodes for people."""
    return [f"{title}: {problem}" for title, problem in problems.items()]


@dataclass(frozen=True, kw_only=True)
class Played:
    """An episode of a test that can be replayed."""

    id: str
    actor: str
    expectation: str
    journal: bytes

    @property
    def title(self) -> str:
        """Which one it is, for people."""
        return f"episode {self.id} of {self.actor}.{self.expectation}"


@dataclass(frozen=True)
class Replays:
    """Replays episodes of a test in this process."""

    app: App
    outside: Outside
    selector: VirtualSelector

    async def problems(self, episodes: Iterable[Played]) -> dict[str, str]:
        """Return the episodes whose replays differ from their journals → how, for people."""
        found = {each.title: await self._problem(each) for each in episodes}
        # guard: strayed-replay-fails
        return {title: problem for title, problem in found.items() if problem}

    async def place(self, episode: Played) -> str:
        """Return the line of what an episode asks for that is not recorded; or nothing."""
        try:
            return await self._bounded(_place(episode.journal, self.app), self.outside)
        except StuckReplay:
            return ""

    async def _problem(self, episode: Played) -> str:
        remedy = f"{REMEDY}; {hint_of(self.app, episode.actor, episode.expectation)}"
        for later_s in LATER_S:
            work = problem_of(episode.journal, self.app, remedy=remedy, is_strict=True)
            try:
                problem = await self._bounded(work, self.outside.later(later_s))
                self.outside.tell()
            except (StuckReplay, OutsideCall) as error:
                problem = str(error)
            if problem:
                when = f"replayed {later_s / HOUR_S:,.0f} hours later: " if later_s else ""
                return f"{when}{problem}"
        return ""

    async def _bounded(self, work: Coroutine[Any, Any, str], outside: Outside) -> str:
        """Return what `work` does; `StuckReplay`: it does not end within the limits."""
        before = asyncio.all_tasks()
        task = asyncio.create_task(work, context=outside.context())
        why = await self._stuck(task)
        if not why:
            return task.result()
        told = f"the replay does not end, {why}: {_waiting(asyncio.all_tasks() - before)}"
        task.cancel()
        await asyncio.wait({task}, timeout=TURNS_MAX * TURN_S)
        raise StuckReplay(told)

    async def _stuck(self, task: asyncio.Task[str]) -> str:
        """Return why `task` does not end; nothing: it has."""
        ends_s, step_s, slept_s, turns = _real.monotonic_s() + REAL_S_MAX, STEP_S_MIN, 0.0, 0
        while not task.done():
            if _real.monotonic_s() > ends_s:
                return f"after {REAL_S_MAX:g} s"
            if turns >= TURNS_MAX:  # guard: kit-spinning-replay-ended
                return f"after {turns:,} turns of the event loop"
            if slept_s >= VIRTUAL_S_MAX:
                return f"after {VIRTUAL_S_MAX:g} s of its time"
            if await self._is_calm(task):
                step_s = min(step_s * 2, VIRTUAL_S_MAX - slept_s)
                await asyncio.wait({task}, timeout=step_s)
                slept_s += step_s
            else:
                turns += LOOK_TURNS
        return ""

    async def _is_calm(self, task: asyncio.Task[str]) -> bool:
        """Return whether nobody can go on, within `LOOK_TURNS`, while `task` has not ended."""
        calm = asyncio.create_task(self.selector.wait_settled())
        await asyncio.wait({task, calm}, timeout=LOOK_TURNS * TURN_S, return_when="FIRST_COMPLETED")
        is_calm = calm.done()
        calm.cancel()
        return is_calm and not task.done()


def hint_of(app: App, actor_id: str, expectation_id: str) -> str:
    """Return what in a strategy may be why it is not the same each time, and what to write."""
    return named_by_check(app, actor_id, expectation_id) or (
        "`vigil check` finds no clock and no random value in its source: look for what outlives the"
        " call, such as a global, for the order of a set, hash() and os.environ"
    )


def named_by_check(app: App, actor_id: str, expectation_id: str) -> str:
    """Return the lines that `vigil check` names in a strategy, and what to write; or nothing."""
    actor = app.actors.get(actor_id)
    expectation = actor.expectations.get(expectation_id) if actor else None
    strategy = expectation.strategy if expectation else None
    found = unreplayable_in(strategy) if isinstance(strategy, Function) else []
    if not found:
        return ""
    named = [f"{each.place}: {each.found}, write {each.instead}" for each in found[:HINTS_MAX]]
    return "`vigil check` names " + "; ".join(dict.fromkeys(named))


def _waiting(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """Return where `tasks` wait for something else than a call of `ctx`, and what to do."""
    works = [each.get_coro() for each in tasks if not each.done()]
    # guard: kit-only-foreign-waits-told
    own = {place_in(each): None for each in works if not _awaits_a_call(each)}
    all_ = {place_in(each): None for each in works}
    places = [each for each in (own if any(own) else all_) if each]
    at = "; ".join(places) or "a call that is not of ctx"
    return (
        f"{at} waits for something that is not of ctx, which may never come in a replay: that gives"
        " branches their results in the order of the journal; wait for nothing but calls of ctx,"
        " and return from branches what others need"
    )


async def _nothing() -> None: ...


def _type_of_wrapper() -> type:
    coroutine = _nothing()
    kind = type(coroutine.__await__())
    coroutine.close()
    return kind


_WRAPPER: Final = _type_of_wrapper()
"""What Python has a coroutine await whose user awaits an object with `__await__`, as calls of `ctx`
are."""


def _awaits_a_call(work: object) -> bool:
    return any(isinstance(each, _WRAPPER) for each in awaited_by(work))
