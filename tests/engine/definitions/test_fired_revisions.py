"""Fires of an actor as it was defined earlier."""

from __future__ import annotations

import msgspec

from engine.episodes.fire import fire
from engine.triggers import timers
from streams.model.events import EpisodeOpened
from tests.engine.defining import agent, app_with, apply, revision_of, runs, says
from tests.engine.stage import Counter, all_answered, lived, running
from tests.engine.triggers.test_timers import letters


async def test_an_episode_runs_on_the_revision_that_was_asked_for(ports):
    tool = Counter()
    async with running(app_with(tool), ports):
        await apply(ports, agent("a"))
        await says(ports, runs(1))
        await apply(ports, agent("b"))
        await says(ports, runs(2))
        older = await lived(ports, await fire(ports, "worker", "thing", by="ada", revision=1))
        newest = await lived(ports, await fire(ports, "worker", "thing", by="ada", revision=2))
        today = await lived(ports, await fire(ports, "worker", "thing", by="ada"))

    assert [revision_of(each) for each in (older, newest, today)] == [1, 2, 2]
    assert tool.calls == ["a", "b", "b"]


async def test_its_options_are_those_of_that_revision(ports):
    options = {"subject_key": "host", "budget": {"turns": 3}, "log_strategy": "timeline"}
    first = agent()
    first["expectations"]["thing"] |= options
    async with running(app_with(), ports):
        await apply(ports, first)
        await says(ports, runs(1))
        await apply(ports, agent())
        await says(ports, runs(2))
        asked = {"revision": 1, "budget": {"tokens": 9}}
        id_ = await fire(ports, "worker", "thing", {"host": "h1"}, by="ada", **asked)
        (opened,) = (await lived(ports, id_)).of(EpisodeOpened)

    assert (opened.trigger.entity_id, opened.log_strategy) == ("h1", "timeline")
    assert (opened.budget.turns, opened.budget.tokens) == (3, 9)


async def test_a_revision_without_the_expectation_is_a_dead_letter(ports):
    later = agent()["expectations"]["thing"]
    async with running(app_with(), ports):
        await apply(ports, agent())
        await says(ports, runs(1))
        await apply(ports, agent(expectations={"later": later}))
        await says(ports, runs(2))
        await fire(ports, "worker", "later", by="ada", revision=1)
        await all_answered(ports.timers)
    (letter,) = await letters(ports)
    assert letter.reason == "unreadable"
    assert "revision 1 has no expectation 'later'" in letter.detail


async def test_a_revision_that_was_never_applied_is_a_dead_letter_in_the_end(ports, monkeypatch):
    monkeypatch.setattr(timers, "STRANGE_DELIVERIES_MAX", 3)
    async with running(app_with(), ports):
        await apply(ports, agent())
        await says(ports, runs(1))
        await fire(ports, "worker", "thing", by="ada", revision=7)
        await all_answered(ports.timers)
    (letter,) = await letters(ports)
    assert msgspec.json.decode(letter.payload)["payload"]["revision"] == 7
