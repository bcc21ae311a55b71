"""Scenarios played over and over, each time with something that goes wrong: the end is the same.

async def closing(vigil):
    await vigil.publish("ticket.solved", {"ticket": "T-1"})
    await vigil.run_until_idle()

await crash_everywhere(lambda: run(app, tools=ROTA), closing)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields, replace
from typing import Final, TypeAlias

from msgspec import UNSET

from engine.errors import BUDGET_EXCEEDED, OUTCOME_UNKNOWN, NondeterministicReplay
from streams.model.events import EndStatus, StepKind
from vigil.testing.replays import REMEDY, Played, hint_of, in_lines, named_by_check
from vigil.testing.running import RunningApp
from vigil.testing.stubs import Call
from vigil.testing.views import StepSnapshot

MOMENTS_MAX: Final = 10_000
"""Most moments of one scenario at which a node can die."""

NOT_THE_SAME: Final = "it is not the same each time, even without a crash"

ALSO_TOOLS: Final = (
    "what real tools return, and what the scenario does, must be the same each time, too: answer"
    " calls with run(app, tools={…}), and make what counts anew in `run`"
)

REMEDIES: Final = {
    BUDGET_EXCEEDED: "; bound what it repeats, and give the tool a time limit:"
    " @tool(timeout_s=…); or give the expectation a larger Budget(…)",
    "loop_detected": "; bound what it repeats",
}
"""Error class → what to do about it."""

Run: TypeAlias = Callable[[], AbstractAsyncContextManager[RunningApp]]
"""Runs the app anew, with new stubs: `lambda: run(app, …)`."""

Scenario: TypeAlias = Callable[[RunningApp], Awaitable[object]]
"""What happens to the app; it calls `run_until_idle` or `advance` before it reads results."""


@dataclass(frozen=True)
class Ending:
    """How a scenario has ended: what must not depend on what went wrong."""

    episodes: Counter[str]
    findings: Counter[str]
    outputs: Counter[str]
    workflows: Counter[str]
    waits: Counter[str]
    effects: Counter[str]
    """Calls that change the outside, one for each idempotency key; and deliveries."""
    is_unknown: bool
    """Whether an episode ended as `outcome_unknown`."""


async def crash_everywhere(
    run: Run,
    scenario: Scenario,
    *,
    every: int = 1,
    may_be_unknown: bool = False,
    may_fail: Collection[str] = (),
    processes: int = 0,
) -> int:
    """Play `scenario` once for each moment at which a node may die, and return how many there are.

    A moment is right before or after a commit to the log. Another node then takes over. Before
    that, it is played twice without a crash, and its episodes are replayed as `check_replay` does.

    Args:
        run: `lambda: run(app, …)`.
        scenario: an async function of the running app; its assertions must be true each time.
        every: 3 tries every third moment.
        may_be_unknown: whether episodes may end as `outcome_unknown`, where a node dies in the
            middle of a call that is not idempotent.
        may_fail: the error classes with which episodes may fail without a crash.
        processes: how many other processes replay its episodes; see `check_replay`.

    Raises `AssertionError`: an episode fails without a crash, or is not the same each time; or with
    a crash, whose moment it names, it ends in another way, or a call that is not idempotent was
    made twice, or one that is had another result. Whatever else the scenario raises has a note that
    names the moment.
    """
    _check_runs(run)
    wanted, moments = await _undisturbed(run, scenario, may_fail=may_fail, processes=processes)
    assert moments <= MOMENTS_MAX, f"{moments:,} moments; the limit is {MOMENTS_MAX:,}"
    for moment in range(1, moments + 1, every):
        async with run() as vigil:
            vigil.crash_at(moment)
            where = f"a node that died at moment {moment} of {moments}"
            try:
                await _play(scenario, vigil)
            except AssertionError as error:
                if not (may_be_unknown and _ending(vigil).is_unknown):
                    raise _told(f"{where}, {vigil.crashed}", [str(error)], vigil) from error
            except BaseException as error:
                # guard: kit-moment-of-each-error
                error.add_note("with " + ", ".join(filter(None, (where, vigil.crashed))))
                raise
            assert vigil.crashed, f"no {where}: the scenario is not the same each time"
            _compare(f"{where}, {vigil.crashed}", wanted, vigil, may_be_unknown=may_be_unknown)
    return moments


async def deliver_twice(run: Run, scenario: Scenario) -> None:
    """Play `scenario`, and then deliver every message to the app once more: nothing may change.

    Raises `AssertionError`, which shows what has.
    """
    _check_runs(run)
    async with run() as vigil:
        await _play(scenario, vigil)
        wanted = _ending(vigil)
        await vigil.deliver_again()
        await vigil.run_until_idle()
        _compare("every message that came again", wanted, vigil, may_be_unknown=False)


def _check_runs(run: object) -> None:
    """Raise `TypeError` if `run` is one run of an app: several are needed."""
    # guard: run-is-made-anew
    if isinstance(run, AbstractAsyncContextManager) or not callable(run):
        raise TypeError("run: give what runs the app anew each time, such as lambda: run(app, …)")


async def _undisturbed(
    run: Run, scenario: Scenario, *, may_fail: Collection[str], processes: int
) -> tuple[Ending, int]:
    """Play `scenario` twice without a crash; return how it ends, and how many moments it has."""
    async with run() as vigil:
        await _play(scenario, vigil)
        wanted, moments, episodes = _ending(vigil), vigil.moments, await vigil.played()
        if failures := [each async for each in _failures(vigil, episodes, may_fail)]:
            raise AssertionError("\n".join([*failures, vigil.story()]))
        try:
            await vigil.check_replay(processes=processes)  # guard: kit-replays-before-crashes
        except AssertionError as error:
            raise AssertionError(f"{NOT_THE_SAME}: {error}\n{vigil.story()}") from error
    async with run() as vigil:
        await _play(scenario, vigil)
        if problems := _differences(wanted, _ending(vigil)):  # guard: kit-unequal-replay-told
            problems += in_lines(await vigil.replays.problems(episodes)) or [ALSO_TOOLS]
            shown = "\n".join(f"  {each}" for each in problems)
            told = f"{NOT_THE_SAME}: played again, it ends in another way:\n{shown}"
            raise AssertionError(f"{told}\n{vigil.story()}")
    return wanted, moments


async def _failures(
    vigil: RunningApp, episodes: Iterable[Played], may_fail: Collection[str]
) -> AsyncIterator[str]:
    """Yield what to tell of each episode that has failed and may not."""
    for played in episodes:
        episode = vigil.episode(played.id)
        # guard: kit-failure-told
        if episode.status != EndStatus.FAILED or episode.error_class in may_fail:
            continue
        place = await vigil.replays.place(played)
        at = f"; it was at {place}" if place else ""
        remedy = REMEDIES.get(episode.error_class, "")
        yield (
            f"without a crash, {played.title} is failed: {episode.error_class}:"
            f" {episode.error_detail}{at}{remedy}; if a test wants that, it says"
            f" may_fail=[{episode.error_class!r}]"
        )


async def _play(scenario: Scenario, vigil: RunningApp) -> None:
    await scenario(vigil)
    await vigil.run_until_idle()


def _compare(where: str, wanted: Ending, vigil: RunningApp, *, may_be_unknown: bool) -> None:
    found = _ending(vigil)
    calls = vigil.calls()
    problems = [f"{name} was called twice" for name in _twice(calls)]
    problems += _with_other_results(calls)
    if not (may_be_unknown and found.is_unknown):
        problems += _differences(wanted, found)  # guard: dying-test-sees-end
    if problems:
        problems += _hints(vigil)  # guard: kit-tells-checked-lines
        if found.is_unknown and not wanted.is_unknown:
            hint = "a tool that can be called again is idempotent=True; else say may_be_unknown"
            problems.append(f"an episode is {OUTCOME_UNKNOWN}: {hint}")
        raise _told(where, problems, vigil)


def _hints(vigil: RunningApp) -> list[str]:
    """Return what in the sources of strategies may be why it ends in another way."""
    app, hints = vigil.replays.app, list[str]()
    for each in vigil.episodes():
        at = each.actor, each.expectation
        is_other = each.error_class == NondeterministicReplay.error_class
        if is_other or named_by_check(app, *at):
            hints.append(f"{each.actor}.{each.expectation}: {REMEDY}; {hint_of(app, *at)}")
    return list(dict.fromkeys(hints))


def _told(where: str, problems: Sequence[str], vigil: RunningApp) -> AssertionError:
    shown = "\n".join(f"  {each}" for each in problems)
    return AssertionError(f"with {where}, it ends in another way:\n{shown}\n{vigil.story()}")


def _differences(wanted: Ending, found: Ending) -> list[str]:
    problems = []
    for field in fields(Ending):
        before, after = getattr(wanted, field.name), getattr(found, field.name)
        if isinstance(before, Counter):
            problems += [f"{field.name}, missing: {each}" for each in (before - after).elements()]
            problems += [f"{field.name}, instead: {each}" for each in (after - before).elements()]
    return problems


def _twice(calls: Iterable[Call]) -> list[str]:
    """Return the names of calls that were made twice and must not be."""
    once = (each for each in calls if each.side_effect and not each.idempotent)
    made = Counter((each.name, each.idempotency_key) for each in once)
    # guard: second-side-effect-told
    return [name for (name, _), count in made.items() if count > 1]


def _with_other_results(calls: Iterable[Call]) -> list[str]:
    """Return what to tell of idempotent calls that returned something else when repeated."""
    first: dict[tuple[str, str], Call] = {}
    problems = []
    for each in calls:
        if not (each.side_effect and each.idempotent) or each.result is UNSET:
            continue
        before = first.setdefault((each.name, each.idempotency_key), each)
        if before.result != each.result:  # guard: kit-unstable-idempotent-told
            at = f" ({each.place})" if each.place else ""
            problems.append(
                f"{each.name}{at} is idempotent=True; it returned {before.result!r}, and"
                f" {each.result!r} again under the same ctx.idempotency_key: pass the key on, or"
                " remove idempotent=True"
            )
    return problems


def _ending(vigil: RunningApp) -> Ending:
    episodes = vigil.episodes()
    return Ending(
        episodes=Counter(
            f"{each.actor}.{each.expectation} of {each.subject!r} is {each.status}"
            f" {each.error_class}: {each.summary} {each.classification!r};"
            f" {', '.join(_shown(step) for step in _in_order(each.steps))}"
            for each in episodes
        ),
        findings=Counter(
            f"{each.finding_key} is {each.status}, {each.severity}, raised {each.raise_no} times"
            for each in vigil.findings(status=None)
        ),
        outputs=Counter(
            f"{each.adapter} is {each.status}, {each.payload!r}" for each in vigil.outputs()
        ),
        workflows=Counter(
            f"{each.name} is {each.status}: {each.steps} {each.results!r}"
            for each in vigil.workflows()
        ),
        waits=Counter(f"{each.what}: {each.ref or each.plan!r}" for each in vigil.waits()),
        effects=_effects(vigil),
        is_unknown=any(each.error_class == OUTCOME_UNKNOWN for each in episodes),
    )


def _in_order(steps: Iterable[StepSnapshot]) -> list[StepSnapshot]:
    """Return steps as they were asked for: the branches of a function end in any order."""
    asked = sorted(steps, key=lambda step: step.path)  # guard: branches-end-in-any-order
    return [replace(step, number=number) for number, step in enumerate(asked, start=1)]


def _shown(step: StepSnapshot) -> str:
    """Return a step without when it was: after a crash it was later."""
    is_time = step.kind is StepKind.OBSERVATION and step.path and step.name == "now"
    is_over = step.kind is StepKind.WAIT and not step.error_class
    # guard: later-after-crash
    return f"{step.number}. {step.name}" if is_time or is_over else str(step)


def _effects(vigil: RunningApp) -> Counter[str]:
    calls = {
        (each.name, each.idempotency_key): f"{each.name} {each.args!r}"
        for each in vigil.calls()
        if each.side_effect
    }
    delivered = {
        each.idempotency_key: f"delivery by {each.adapter}: {each.payload!r}"
        for each in vigil.all_deliveries()
    }
    return Counter([*calls.values(), *delivered.values()])
