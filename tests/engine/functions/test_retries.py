"""Calls that are repeated: when, how often, under which key, and whenever a node dies."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.app.actions import RETRY_AFTER_S_MAX, Retries
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.app.tools import ToolBreaker, ToolFailed, retry_s
from engine.errors import CallFailed
from streams.model.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeStarted,
    StepAnnounced,
    StepRecorded,
)
from streams.model.triggers import Budget
from tests.engine import stage
from tests.engine.functions.stage import app_of, middle, play, resume
from vigil.testing import crash_everywhere, in_turn, run
from vigil.testing.virtual_time import DAY_ONE

AT_ONCE = Retries(attempts_max=4, first_s=0.001, most_s=0.002)
MINUTES = Retries(attempts_max=4, first_s=60)


class Site:
    """Something that answers its calls one after the other with what it was given."""

    def __init__(self, *answers: object, **options) -> None:
        self._answers = list(answers)
        self.keys: list[str] = []

        @tool(**{"retries": AT_ONCE, **options})
        async def fetch(url: str = "/", *, ctx) -> object:
            self.keys.append(ctx.idempotency_key)
            answer = self._answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        self.fetch = fetch


DOWN = ConnectionError("down")


async def check(ctx, trigger):
    try:
        return ConvergeResult(summary=await ctx.call("fetch", url="/"))
    except CallFailed as failed:
        return ConvergeResult(summary=failed.error_class)


def ended(life) -> str:
    assert life.end.status is EndStatus.DONE, life.end.error_detail
    return life.of(EpisodeConverged)[0].summary


def paths(life) -> list[str]:
    return [step.path for step in life.of(StepRecorded)]


async def test_a_failed_call_is_made_again_after_a_pause():
    site = Site(DOWN, DOWN, "up")
    life = await play(check, tools=[site.fetch])
    assert (ended(life), paths(life)) == ("up", ["1", "1.0.1", "1.0.2", "1.0.3", "1.0.4"])
    kinds = [step.kind.value for step in life.of(StepRecorded)]
    assert kinds == ["tool_call", "wait", "tool_call", "wait", "tool_call"]


async def test_the_last_attempt_is_what_the_function_gets():
    site = Site(*4 * [DOWN], "never asked")
    life = await play(check, tools=[site.fetch])
    assert (ended(life), len(site.keys)) == ("tool_unavailable", 4)


@pytest.mark.parametrize(
    ("raised", "attempts"),
    [
        (TimeoutError(), 2),
        (DOWN, 2),
        (ValueError("boom"), 2),
        (ToolFailed("tool_rate_limited"), 2),
        (ToolFailed("tool_breaker_open"), 2),
        (PermissionError(), 1),
        (FileNotFoundError(), 1),
        (ToolFailed("quota"), 1),
    ],
)
async def test_what_has_answered_is_not_asked_again(raised, attempts):
    site = Site(raised, "up")
    await play(check, tools=[site.fetch])
    assert len(site.keys) == attempts


async def test_arguments_that_do_not_fit_are_not_tried_again():
    async def wrong(ctx, trigger):
        await ctx.call("fetch", url=7)

    life = await play(wrong, tools=[Site().fetch])
    assert (life.end.error_class, paths(life)) == ("invalid_arguments", ["1"])


async def test_a_tool_without_retries_is_called_once():
    site = Site(DOWN, "up", retries=None)
    life = await play(check, tools=[site.fetch])
    assert (ended(life), paths(life)) == ("tool_unavailable", ["1"])


async def test_an_open_breaker_is_waited_for():
    breaker = ToolBreaker(threshold=1, half_open_after_s=0.002)
    retries = Retries(attempts_max=20, first_s=0.001)
    site = Site(DOWN, "up", breaker=breaker, retries=retries)
    life = await play(check, tools=[site.fetch])
    assert (ended(life), len(site.keys)) == ("up", 2)


async def test_all_attempts_of_a_call_have_one_key():
    async def twice(ctx, trigger):
        await ctx.call("fetch")
        await ctx.call("fetch")

    site = Site(DOWN, DOWN, "up", DOWN, "up", side_effect=True, idempotent=True)
    life = await play(twice, tools=[site.fetch])
    first, second = site.keys[0], site.keys[3]
    assert site.keys == [first, first, first, second, second]
    assert first != second
    announced = [each for each in life.of(StepAnnounced) if each.until is None]
    assert [each.idempotency_key for each in announced] == site.keys


async def test_a_call_is_made_again_though_it_was_the_last_of_the_budget():
    site = Site(DOWN, DOWN, "up")
    assert ended(await play(check, tools=[site.fetch], budget=Budget(turns=1))) == "up"


async def test_attempts_and_pauses_are_no_turns_of_the_budget():
    async def more(ctx, trigger):
        await ctx.call("fetch")
        await ctx.observe("after")

    site = Site(DOWN, DOWN, DOWN, "up")
    enough = await play(more, tools=[site.fetch], budget=Budget(turns=3))
    assert enough.end.status is EndStatus.DONE
    assert enough.end.turns_used == 3, "two calls, and the return"
    site = Site(DOWN, "up")
    too_few = await play(more, tools=[site.fetch], budget=Budget(turns=1))
    assert (too_few.end.error_class, too_few.end.turns_used) == ("budget_exceeded", 1)


async def test_branches_repeat_their_calls_beside_each_other():
    async def both(ctx, trigger):
        got = await ctx.gather(ctx.call("fetch"), ctx.call("fetch"))
        return ConvergeResult(summary=" ".join(got))

    site = Site(DOWN, DOWN, "up", "up")
    life = await play(both, tools=[site.fetch])
    assert ended(life) == "up up"
    assert sorted(paths(life)) == [
        "1.1.1", "1.1.1.0.1", "1.1.1.0.2", "1.2.1", "1.2.1.0.1", "1.2.1.0.2",
    ]  # fmt: skip


async def test_whenever_a_node_dies_attempts_go_on_with_the_next_one():
    whole = await play(check, tools=[Site(DOWN, DOWN, "up").fetch])
    events = [each for each in middle(whole) if not isinstance(each, EpisodeConverged)]
    for cut in range(len(events) + 1):
        tried = [each for each in events[:cut] if getattr(each, "tool_name", "") == "fetch.call"]
        site = Site(*[DOWN, DOWN, "up"][len(tried) :])
        life = await resume(app_of(check, tools=[site.fetch]), events[:cut])
        assert (ended(life), paths(life)) == ("up", paths(whole))
        assert len(site.keys) == 3 - len(tried)


async def test_a_pause_ends_when_it_would_have_if_its_node_dies():
    slow = {"retries": MINUTES}
    life = await play(
        check, tools=[Site(DOWN, **slow).fetch], reached=lambda far: far.of(EpisodeBlocked)
    )
    failed, pause = middle(life)[:2]
    assert (failed.path, pause.path) == ("1", "1.0.1")
    assert life.of(EpisodeBlocked)[0].wait.expires_at == pause.until
    over = [failed, replace(pause, until=pause.until - timedelta(hours=1))]
    again = await resume(app_of(check, tools=[Site("up", **slow).fetch]), over)
    assert (ended(again), paths(again)) == ("up", ["1", "1.0.1", "1.0.2"])


async def test_a_failed_attempt_and_the_end_of_its_pause_are_one_commit():
    app = app_of(check, tools=[Site().fetch], durability="strict")
    async with run(app, tools={"fetch.call": DOWN}) as vigil:
        episode_id = await vigil.fire("worker", "thing")
        await vigil.advance(hours=1)
        records = (await stage.life(vigil.ports, episode_id)).records
    together = 0
    for events in (record.commit.events for record in records):
        failed = [each for each in events if isinstance(each, StepRecorded) and each.retry_s]
        begun = [each for each in events if isinstance(each, StepAnnounced)]
        assert len(failed) == len(begun)
        together += len(failed)
    assert together == AT_ONCE.attempts_max - 1


async def test_what_the_journal_says_of_an_attempt_stands_when_the_retries_change():
    failed, *_ = middle(await play(check, tools=[Site(DOWN, "up").fetch]))
    again = await resume(app_of(check, tools=[Site("up", retries=None).fetch]), [failed])
    assert ended(again) == "up"
    once = replace(failed, retry_s=0.0)
    gone_on = await resume(app_of(check, tools=[Site("up").fetch]), [once])
    assert ended(gone_on) == "tool_unavailable"


async def test_pauses_double_and_jitter_is_fixed_by_the_call():
    pauses = []
    for key in ("a", "a", "b"):
        retries = Retries(attempts_max=5, first_s=1, most_s=6)
        pauses.append([retry_s(retries, "crash", attempt=n, key=key) for n in range(1, 6)])
    for most, pause in zip([1, 2, 4, 6], pauses[0], strict=False):
        assert most / 2 <= pause <= most
    assert pauses[0][4] == 0.0
    assert pauses[0] == pauses[1] != pauses[2]


def test_a_server_may_ask_for_a_longer_pause_and_for_no_shorter_one():
    def pause_s(after_s: float, *, error_class: str = "tool_rate_limited", attempt: int = 1):
        return retry_s(MINUTES, error_class, attempt=attempt, key="k", after_s=after_s)

    assert pause_s(90.0) == 90.0
    assert pause_s(1.0) == pause_s(0.0)
    assert pause_s(1e9) == RETRY_AFTER_S_MAX
    assert pause_s(90.0, attempt=4) == pause_s(90.0, error_class="http_400") == 0.0


@pytest.mark.parametrize(("asked", "pause_s"), [(30.0, 30.0), (float("nan"), 0.0), (-5, 0.0)])
async def test_a_tool_says_what_pause_its_server_asks_for(asked, pause_s):
    busy = ToolFailed("tool_rate_limited", "slow down", retry_after_s=asked)
    site = Site(busy, "up")
    life = await play(check, tools=[site.fetch], reached=lambda far: far.of(StepRecorded))
    assert life.of(StepRecorded)[0].retry_s == pytest.approx(pause_s, abs=0.01)


async def test_a_pause_of_more_than_5_s_holds_no_slot():
    answers = {"fetch.call": in_turn(DOWN, DOWN, "up")}
    slow = Site(retries=Retries(attempts_max=3, first_s=5, most_s=20)).fetch
    async with run(app_of(check, tools=[slow]), tools=answers) as vigil:
        episode_id = await vigil.fire("worker", "thing")
        await vigil.advance(minutes=1)
        life = await stage.life(vigil.ports, episode_id)
    assert ended(life) == "up"
    first, second = (each.retry_s for each in life.of(StepRecorded) if each.retry_s)
    assert first <= 5 < second  # Half to all of 5 s, and of 10 s.
    assert [each.path for each in life.of(EpisodeBlocked)] == ["1.0.3"]
    assert len(life.of(EpisodeStarted)) == 2


async def test_an_episode_leaves_its_node_for_a_minute():
    answers = {"fetch.call": in_turn(DOWN, "up")}
    site = Site(retries=MINUTES)
    async with run(app_of(check, tools=[site.fetch]), tools=answers) as vigil:
        await vigil.fire("worker", "thing")
        await vigil.advance(seconds=20)
        assert vigil.episode().status == "blocked"
        await vigil.crash()
        await vigil.advance(minutes=1)
        assert vigil.episode().summary == "up"


async def test_it_ends_the_same_whenever_a_node_dies():
    site = Site(retries=MINUTES, side_effect=True, idempotent=True)
    now = []

    def answer():
        if now[-1]() < DAY_ONE + timedelta(seconds=90):
            raise DOWN
        return "up"

    async def repeated(vigil):
        now.append(lambda: vigil.now)
        await vigil.fire("worker", "thing")
        await vigil.advance(hours=1)
        assert vigil.episode().summary == "up"
        assert len({each.idempotency_key for each in vigil.calls("fetch.call")}) == 1

    app = app_of(check, tools=[site.fetch], attempts_max=10)
    moments = await crash_everywhere(lambda: run(app, tools={"fetch.call": answer}), repeated)
    assert moments >= 12


async def test_a_dry_run_does_not_pause_nor_announce_it():
    answers = {"fetch.call": in_turn(DOWN, "up")}
    site = Site(retries=MINUTES)
    async with run(app_of(check, tools=[site.fetch]), tools=answers) as vigil:
        await vigil.fire("worker", "thing", dry_run=True)
        await vigil.run_until_idle()
        assert vigil.episode().summary == "up"
        life = await stage.life(vigil.ports, vigil.episode().id)
        assert life.of(StepAnnounced) == []


async def test_a_timeout_of_the_functions_own_ends_the_attempts_in_a_pause():
    async def waits_little(ctx, trigger):
        try:
            async with asyncio.timeout(0.4):
                await ctx.call("fetch", url="/")
        except TimeoutError:
            return ConvergeResult(summary="went on")

    site = Site(DOWN, "up", retries=Retries(attempts_max=2, first_s=2, most_s=2))
    life = await play(waits_little, tools=[site.fetch])
    assert life.episode.converged.summary == "went on"
    assert [(each.path, each.error_class) for each in life.of(StepRecorded)] == [
        ("1", "tool_unavailable"),
        ("1.0.1", "call_timeout"),
    ]
