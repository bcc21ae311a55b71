"""Calls of strategy classes that are repeated: as those of functions, in one turn of the class."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.app.actions import Sleep, checkpoint, observe, tool_call
from engine.app.outputs import Retries
from engine.errors import NondeterministicReplay
from engine.operations.replay import load, record, replay
from streams.model.events import (
    CheckpointSaved,
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
from tests.engine.functions.test_retries import DOWN, MINUTES, Site, paths
from tests.engine.stage import Scripted
from vigil.testing import crash_everywhere, in_turn, run
from vigil.testing.virtual_time import DAY_ONE

FETCH = tool_call("fetch", "call", {"url": "/"})


class Turning(Scripted):
    """Notes the number of each turn that it is asked for."""

    def __init__(self, *plan):
        super().__init__(*plan)
        self.turns: list[int] = []

    def next_step(self, state, ctx):
        self.turns.append(ctx.turn)
        return super().next_step(state, ctx)


async def test_a_failed_call_is_made_again_before_the_class_gets_its_result():
    site = Site(DOWN, DOWN, "up")
    strategy = Turning(observe(1), FETCH, observe(2))
    life = await play(strategy, tools=[site.fetch])
    assert life.seen == [1, "up", 2]
    assert paths(life) == ["1", "2", "2.0.1", "2.0.2", "2.0.3", "2.0.4", "3"]
    assert strategy.turns == [1, 2, 3, 4]


async def test_the_last_attempt_is_what_the_class_gets():
    site = Site(*4 * [DOWN], "never asked")
    life = await play(Scripted(FETCH), tools=[site.fetch])
    assert (life.seen, len(site.keys)) == (["tool_unavailable"], 4)


async def test_a_class_that_asks_again_begins_another_call():
    site = Site(DOWN, DOWN, "up", DOWN, "up", side_effect=True, idempotent=True)
    life = await play(Scripted(FETCH, FETCH), tools=[site.fetch])
    first, second = site.keys[0], site.keys[3]
    assert site.keys == [first, first, first, second, second]
    assert first != second
    announced = [each for each in life.of(StepAnnounced) if each.until is None]
    assert [each.idempotency_key for each in announced] == site.keys


async def test_attempts_and_pauses_are_no_turns_of_the_budget():
    site = Site(DOWN, DOWN, DOWN, "up")
    last = await play(Scripted(FETCH), tools=[site.fetch], budget=Budget(turns=1))
    assert (last.end.status, last.end.turns_used) == (EndStatus.DONE, 2)
    site = Site(DOWN, "up")
    used_up = await play(Scripted(FETCH, FETCH), tools=[site.fetch], budget=Budget(turns=1))
    assert (used_up.end.error_class, len(site.keys)) == ("budget_exceeded", 2)
    assert used_up.end.turns_used == 1


@pytest.mark.parametrize(
    "plan",
    [
        (observe(1), checkpoint("here"), FETCH, observe(2)),
        (FETCH, checkpoint("here"), observe(1), observe(2)),
    ],
)
async def test_whenever_a_node_dies_attempts_go_on_with_the_next_one(plan):
    whole = await play(Scripted(*plan), tools=[Site(DOWN, DOWN, "up").fetch])
    events = [each for each in middle(whole) if not isinstance(each, EpisodeConverged)]
    for cut in range(len(events) + 1):
        tried = [each for each in events[:cut] if getattr(each, "tool_name", "") == "fetch.call"]
        site, strategy = Site(*[DOWN, DOWN, "up"][len(tried) :]), Turning(*plan)
        life = await resume(app_of(strategy, tools=[site.fetch]), events[:cut])
        assert (life.seen, paths(life)) == (whole.seen, paths(whole))
        assert len(site.keys) == 3 - len(tried)
        assert strategy.turns == list(range(strategy.turns[0], 6))


async def test_a_pause_ends_when_it_would_have_if_its_node_dies():
    slow = {"retries": MINUTES}
    strategy = Scripted(FETCH)
    life = await play(
        strategy, tools=[Site(DOWN, **slow).fetch], reached=lambda far: far.of(EpisodeBlocked)
    )
    kept, failed, pause = middle(life)[:3]
    assert isinstance(kept, CheckpointSaved)
    assert (failed.path, pause.path) == ("1", "1.0.1")
    assert life.of(EpisodeBlocked)[0].wait.expires_at == pause.until
    over = [kept, failed, replace(pause, until=pause.until - timedelta(hours=1))]
    again = await resume(app_of(strategy, tools=[Site("up", **slow).fetch]), over)
    assert (again.seen, paths(again)) == (["up"], ["1", "1.0.1", "1.0.2"])


async def test_a_pause_of_more_than_5_s_holds_no_slot():
    answers = {"fetch.call": in_turn(DOWN, DOWN, "up")}
    slow = Site(retries=Retries(attempts_max=3, first_s=5, most_s=20)).fetch
    async with run(app_of(Scripted(FETCH), tools=[slow]), tools=answers) as vigil:
        episode_id = await vigil.fire("worker", "thing")
        await vigil.advance(minutes=1)
        life = await stage.life(vigil.ports, episode_id)
    assert life.seen == ["up"]
    assert [each.path for each in life.of(EpisodeBlocked)] == ["1.0.3"]
    assert len(life.of(EpisodeStarted)) == 2


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
        assert vigil.episode().classification == {"seen": [1, "up"]}
        assert len({each.idempotency_key for each in vigil.calls("fetch.call")}) == 1

    app = app_of(Scripted(observe(1), FETCH), tools=[site.fetch], attempts_max=10)
    moments = await crash_everywhere(lambda: run(app, tools={"fetch.call": answer}), repeated)
    assert moments >= 12


async def test_a_dry_run_does_not_pause():
    answers = {"fetch.call": in_turn(DOWN, "up")}
    app = app_of(Scripted(FETCH), tools=[Site(retries=MINUTES).fetch])
    async with run(app, tools=answers) as vigil:
        await vigil.fire("worker", "thing", dry_run=True)
        await vigil.run_until_idle()
        assert vigil.episode().classification == {"seen": ["up"]}


async def test_a_class_that_is_begun_anew_counts_its_turns_anew():
    first = Scripted(FETCH, observe(1))
    whole = await play(first, tools=[Site(DOWN, "up").fetch])
    until_observed = middle(whole)[:-2]
    again, site = Turning(FETCH, observe(1)), Site(DOWN, "up")
    life = await resume(app_of(again, tools=[site.fetch], recovery="restart"), until_observed)
    assert (life.seen, again.turns) == (["up", 1], [1, 2, 3])
    assert [step.path for step in life.of(StepRecorded)[-4:]] == ["1", "1.0.1", "1.0.2", "2"]


# Histories.


async def history_of(strategy, *answers, reached=None, **options):
    app, ports = app_of(strategy, tools=[Site(*answers, **options).fetch]), stage.ports_in_memory()
    async with stage.running(app, ports):
        episode_id = await stage.open_episode(ports, app)
        await stage.lived(ports, episode_id, reached)
    return load(await record(ports, episode_id))


async def replayed(records, strategy):
    return await replay(records, app_of(strategy, tools=[Site().fetch]))


async def test_a_history_is_replayed_with_all_attempts_as_one_turn():
    records = await history_of(Scripted(FETCH, observe(1)), DOWN, DOWN, "up")
    strategy = Turning(FETCH, observe(1))
    again = await replayed(records, strategy)
    assert (again.steps, again.state.seen, strategy.turns) == (6, ["up", 1], [1, 2, 3])


async def test_a_history_that_ends_in_a_pause_asks_for_the_pause():
    blocked = {"reached": lambda far: far.of(EpisodeBlocked), "retries": MINUTES}
    records = await history_of(Scripted(FETCH), DOWN, **blocked)
    assert isinstance((await replayed(records, Scripted(FETCH))).asks, Sleep)
    with pytest.raises(NondeterministicReplay, match=r"call 1 was tool_call fetch\.call"):
        await replayed(records, Scripted(observe("other")))


@pytest.mark.parametrize("other", [observe("other"), tool_call("fetch", "call", {"url": "/b"})])
async def test_a_class_that_asks_for_something_else_between_attempts_is_found(other):
    life = await play(Scripted(FETCH), tools=[Site(DOWN, "up").fetch])
    failed = middle(life)[:3]
    again = await resume(app_of(Scripted(other), tools=[Site().fetch]), failed)
    assert again.end.error_class == "nondeterministic_replay"


async def test_a_class_that_ends_between_attempts_is_found():
    life = await play(Scripted(FETCH), tools=[Site(DOWN, "up").fetch])
    again = await resume(app_of(Scripted(), tools=[Site().fetch]), middle(life)[:3])
    assert again.end.error_class == "nondeterministic_replay"
