"""What a node may do, as the registry changes under it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from engine.cluster import mode_watch
from engine.cluster.mode_watch import ModeWatcher
from engine.cluster.modes import Switch
from engine.runtime.permits import Permit
from streams.errors import Unavailable
from streams.keys import mode_key, pause_key
from streams.model.modes import NodeMode
from tests.engine.stage import CLOCK, WAIT_S, eventually

BOTH = Switch(wakes=True, runs=True)
WAKES = Switch(wakes=True, runs=False)
RUNS = Switch(wakes=False, runs=True)
NEITHER = Switch(wakes=False, runs=False)


def board_of(registry, *, setting=NodeMode.FULL, **options) -> ModeWatcher:
    return ModeWatcher(registry, ["a", "b"], CLOCK, node="n1", setting=setting, **options)


@asynccontextmanager
async def serving(board: ModeWatcher):
    task = asyncio.create_task(board.follow())
    try:
        yield board
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_nothing_is_allowed_before_the_registry_was_asked(ports):
    board = board_of(ports.registry)
    assert board.may("a") == NEITHER
    async with serving(board):
        await asyncio.wait_for(board.has_looked.wait(), WAIT_S)
        assert board.may("a") == BOTH


async def test_what_was_said_while_the_node_was_down_holds_from_the_first_moment(ports):
    await ports.registry.put(mode_key("n1"), b'{"mode":"trigger_only","actors":{"b":"full"}}')
    await ports.registry.put(pause_key("b"), b"{}")
    async with serving(board_of(ports.registry)) as board:
        await board.has_looked.wait()
        assert (board.may("a"), board.may("b")) == (WAKES, RUNS)


async def test_what_is_said_is_done_at_once_and_undone_when_it_is_taken_back(ports):
    async with serving(board_of(ports.registry, setting=NodeMode.TRIGGER_ONLY)) as board:
        await eventually(lambda: board.may("a") == WAKES)
        await ports.registry.put(mode_key("n1"), b'{"mode":"full"}')
        await eventually(lambda: board.may("a") == BOTH)
        await ports.registry.put(pause_key("a"), b"{}")
        await eventually(lambda: board.may("a") == RUNS)
        assert board.may("b") == BOTH
        await ports.registry.delete(pause_key("a"))
        await ports.registry.delete(mode_key("n1"))
        await eventually(lambda: board.may("a") == WAKES)


async def test_what_is_said_of_other_nodes_and_actors_changes_nothing(ports):
    async with serving(board_of(ports.registry)) as board:
        await board.has_looked.wait()
        board.changed.clear()
        await ports.registry.put(mode_key("n2"), b'{"mode":"disabled"}')
        await ports.registry.put(pause_key("other"), b"{}")
        await ports.registry.put(pause_key("b"), b"{}")
        await eventually(lambda: board.may("b") == RUNS)
        assert board.may("a") == BOTH


async def test_an_entry_that_cannot_be_read_is_named_once_and_ignored(ports):
    await ports.registry.put(mode_key("n1"), b'{"mode":"off"}')
    with capture_logs() as lines:
        async with serving(board_of(ports.registry)) as board:
            await eventually(lambda: board.may("a") == BOTH)
            await ports.registry.put(pause_key("b"), b"{}")
            await eventually(lambda: board.may("b") == RUNS)
    ignored = [line for line in lines if line["log_level"] == "warning"]
    assert [line["key"] for line in ignored] == ["mode.n1"]


async def test_one_that_never_wakes_does_not_whatever_is_said(ports):
    await ports.registry.put(mode_key("n1"), b'{"mode":"full"}')
    async with serving(board_of(ports.registry, never_wakes=True)) as board:
        await board.has_looked.wait()
        assert board.may("a") == RUNS


async def test_after_the_end_nothing_is_allowed_any_more(ports):
    async with serving(board_of(ports.registry)) as board:
        await board.has_looked.wait()
        board.end()
        await ports.registry.put(mode_key("n1"), b'{"mode":"full"}')
        await ports.registry.put(pause_key("b"), b"{}")
        assert await board.permits["a"].runs.wait_given() is False
        assert (board.may("a"), board.may("b")) == (NEITHER, NEITHER)


class Deaf:
    """A registry whose watches are told of nothing that is deleted."""

    def __init__(self, registry):
        self._registry = registry
        self.get = registry.get

    @asynccontextmanager
    async def watch(self, *, under=""):
        async with self._registry.watch(under=under) as watch:
            yield DeafWatch(watch)


class DeafWatch:
    def __init__(self, watch):
        self._watch = watch

    async def receive(self, *, most, wait_s):
        return [each for each in await self._watch.receive(most=most, wait_s=0.01) if each.value]


async def test_a_deletion_that_nobody_told_is_found_out(ports, monkeypatch):
    monkeypatch.setattr(mode_watch, "LOOK_S", 0.0)
    await ports.registry.put(pause_key("a"), b"{}")
    async with serving(board_of(Deaf(ports.registry))) as board:
        await eventually(lambda: board.may("a") == RUNS)
        await ports.registry.delete(pause_key("a"))
        await eventually(lambda: board.may("a") == BOTH)


class Away(Deaf):
    """A registry that cannot be asked."""

    def __init__(self, registry):
        super().__init__(registry)
        self.get = self._refuse

    async def _refuse(self, key):
        raise Unavailable(key, detail="away")


async def test_while_the_registry_is_away_nothing_is_allowed(ports):
    board = board_of(Away(ports.registry))
    with pytest.raises(Unavailable):
        await board.follow()
    assert board.may("a") == NEITHER
    assert not board.has_looked.is_set()


async def test_whoever_works_under_a_permit_notices_its_end_even_if_it_is_given_again_at_once():
    permit = Permit()
    assert permit.turn(on=True)
    withdrawn = permit.withdrawn
    permit.turn(on=False)
    permit.turn(on=True)
    assert withdrawn.is_set()
    assert permit.is_given
    assert not permit.withdrawn.is_set()
    assert not permit.turn(on=True), "it is no news"


async def test_a_branch_of_a_permit_follows_it_until_it_ends_and_leaves_it_as_it_is():
    trunk = Permit()
    branch, other = trunk.branch(), trunk.branch()
    assert not branch.is_given
    trunk.turn(on=True)
    assert (branch.is_given, trunk.branch().is_given) == (True, True)
    branch.end()
    assert (branch.is_given, other.is_given, trunk.is_given) == (False, True, True)
    trunk.turn(on=False)
    trunk.turn(on=True)
    assert (branch.is_given, other.is_given) == (False, True)
    trunk.end()
    assert (other.is_given, trunk.branch().is_over) == (False, True)


async def test_an_actor_that_comes_later_is_given_nothing_before_it_was_asked_about(ports):
    asked, may = asyncio.Event(), asyncio.Event()

    class Slow(Deaf):
        def __init__(self, registry):
            super().__init__(registry)
            self.get = self._wait

        async def _wait(self, key):
            if key == pause_key("new"):
                asked.set()
                await may.wait()
            return await self._registry.get(key)

    await ports.registry.put(pause_key("new"), b"{}")
    async with serving(board_of(Slow(ports.registry))) as board:
        await board.has_looked.wait()
        board.learn("new")
        await asyncio.wait_for(asked.wait(), WAIT_S)
        assert (board.may("new"), board.has_looked.is_set()) == (NEITHER, False)
        await ports.registry.put(pause_key("a"), b"{}")
        await eventually(lambda: board.may("a") == RUNS)
        assert board.may("new") == NEITHER
        may.set()
        await asyncio.wait_for(board.has_looked.wait(), WAIT_S)
        assert board.may("new") == RUNS


async def test_an_actor_that_goes_and_comes_back_is_asked_about_again(ports):
    async with serving(board_of(ports.registry)) as board:
        await board.has_looked.wait()
        before = board.learn("a")
        board.forget("a")
        assert (before.runs.is_given, "a" in board.permits) == (False, False)
        await ports.registry.put(pause_key("a"), b"{}")
        assert board.learn("a") is not before
        await eventually(lambda: board.may("a") == RUNS)


async def test_an_actor_that_comes_after_the_end_is_given_nothing(ports):
    async with serving(board_of(ports.registry)) as board:
        await board.has_looked.wait()
        board.end()
        permits = board.learn("new")
        assert await permits.runs.wait_given() is False


async def test_a_node_whose_only_actor_has_gone_still_waits_to_hear_its_mode(ports):
    board = ModeWatcher(ports.registry, ["a"], CLOCK, node="n1", setting=NodeMode.FULL)
    board.forget("a")
    assert not board.has_looked.is_set()
