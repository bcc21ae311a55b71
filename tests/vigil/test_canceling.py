"""Canceling episodes, as an operator does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from projections.postgres import pool as postgres
from streams.subjects import Stack
from tests.vigil.journal import KEPT
from tests.vigil.program import NOWHERE, Vigil
from tests.vigil.test_command_line import one_line
from vigil.client.episodes import read_unended

APP = '''
"""One actor with room for one episode, which waits for ever unless it is told not to."""

import asyncio

from vigil import Actor, App, ConvergeResult, Strategy, converge, event


class Wait(Strategy):
    def init(self, episode, trigger):
        return {"is_short": trigger.payload.get("is_short", False)}

    async def next_step(self, state, ctx):
        if not state["is_short"]:
            await asyncio.Event().wait()
        return converge()

    def converge(self, state, ctx):
        return ConvergeResult(summary="not waited for")


waiter = Actor("waiter", max_concurrent_episodes=1)
waiter.expect("wait", Wait, on=event("thing.happened"))
app = App(actors=[waiter])
'''


@contextmanager
def serving(vigil: Vigil, *options: str) -> Iterator[None]:
    """A node and its rows are up meanwhile."""
    (vigil.folder / "watch.py").write_text(APP)
    with vigil.running("node", "--app", "watch:app", *options) as program:
        program.wait_said("node up")
        vigil.wait_for("episodes", "list", until=lambda _: True)
        yield


def fired(vigil: Vigil, *options: str) -> str:
    return vigil.run("fire", "waiter", "wait", *options).stdout.strip()


def statuses(vigil: Vigil) -> list[str]:
    return sorted(row["status"] for row in vigil.ask("episodes", "list"))


def test_an_episode_that_runs_is_canceled_and_says_who_wanted_it_and_why(connected):
    with serving(connected):
        id_ = fired(connected)
        connected.wait_for("episodes", "show", id_, until=lambda row: row["status"] == "running")
        asked = ("episodes", "cancel", id_, "--by", "ada", "--reason", "a typo", "--wait")
        done = connected.run(*asked)
        row = connected.ask("episodes", "show", id_)

    assert (done.returncode, done.stdout) == (0, f"{id_}: canceled\n")
    assert (row["error_class"], row["error_detail"]) == ("canceled", "by ada: a typo")


def test_an_episode_that_has_ended_stays_as_it_is(connected):
    with serving(connected):
        id_ = fired(connected, "--payload", '{"is_short": true}', "--wait").splitlines()[0]
        asked = connected.run("episodes", "cancel", id_)
        waited = connected.run("episodes", "cancel", id_, "--wait")

    assert (asked.returncode, asked.stdout) == (0, f"{id_}: done\n")
    assert (waited.returncode, waited.stdout) == (1, f"{id_}: done\n")


def test_all_that_an_actor_has_open_is_canceled_once_that_is_confirmed(connected):
    with serving(connected):
        for _ in range(3):
            fired(connected)
        wanted = ["queued", "queued", "running"]
        connected.wait_for(
            "episodes", "list", until=lambda rows: sorted(r["status"] for r in rows) == wanted
        )
        asked = ("episodes", "cancel", "--actor", "waiter")
        refused = connected.run(*asked)
        assert statuses(connected) == wanted
        queued = connected.run(*asked, "--status", "queued", "--yes")
        rest = connected.ask(*asked, "--expectation", "wait", "--yes", "--wait")
        connected.wait_for(
            "episodes", "list", until=lambda rows: {r["status"] for r in rows} == {"canceled"}
        )
        nothing = connected.run(*asked)

    assert (refused.returncode, "give --yes" in refused.stderr) == (2, True)
    assert queued.stdout == "2 queued, to be canceled\n"
    assert {each["status"] for each in rest} == {"canceled"}
    assert (nothing.returncode, nothing.stdout) == (0, "nothing to cancel\n")


async def every(dsn: str, stack: str, *, round_max: int) -> list[str]:
    async with await postgres.connect(dsn) as pool:
        found = await read_unended(pool, Stack(stack), actor="waiter", round_max=round_max)
        return [str(each.episode_id) for each in found]


def test_all_that_an_actor_has_open_are_found_however_few_are_asked_for_at_a_time(connected):
    with serving(connected):
        ids = sorted(fired(connected) for _ in range(3))
        connected.wait_for("episodes", "list", until=lambda rows: len(rows) == 3)
        dsn, stack = (connected.environ[f"VIGIL_{each}"] for each in ("POSTGRES_DSN", "STACK"))
        for round_max in (1, 2, 3, 4):
            found = asyncio.run(every(dsn, stack, round_max=round_max))
            assert sorted(found) == ids
        connected.run("episodes", "cancel", "--actor", "waiter", "--yes", "--wait")


def test_what_nothing_can_end_now_is_said_and_waited_for_no_longer_than_one_likes(connected):
    with serving(connected, "--mode", "trigger_only"):
        id_ = fired(connected)
        connected.wait_for("episodes", "show", id_, until=lambda row: row["status"] == "queued")
        done = connected.run("episodes", "cancel", id_, "--wait", "--timeout", "0")

    why, late = done.stderr.splitlines()
    assert why.startswith("vigil: no node that is up runs actor 'waiter' (")
    assert ": it is in mode trigger_only, and runs nothing); `vigil mode " in why
    assert why.endswith(" full`, or " + KEPT)
    assert f"episode {id_} is still" in late
    assert done.returncode == 1


def test_to_cancel_all_of_an_actor_that_nobody_knows_is_refused(connected):
    with serving(connected):
        actor = connected.run("episodes", "cancel", "--actor", "wayter", "--yes")
        words = ("--actor", "waiter", "--expectation", "wai", "--yes")
        expectation = connected.run("episodes", "cancel", *words)

    assert "nobody knows an actor 'wayter'; did you mean waiter?" in one_line(actor, code=1)
    assert "no expectation 'wai'; did you mean wait?" in one_line(expectation, code=1)


def test_an_id_that_nobody_knows_is_one_line_and_the_others_are_canceled(connected):
    with serving(connected):
        id_ = fired(connected)
        connected.wait_for("episodes", "list", until=bool)
        done = connected.run("episodes", "cancel", str(UUID(int=7)), id_, "--wait")

    assert done.returncode == 1
    assert done.stdout == f"{id_}: canceled\n"
    assert f"no episode {UUID(int=7)} in stack" in done.stderr
    assert "`vigil episodes list` shows" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name the episodes, or give --latest, or --actor"),
        (
            (str(UUID(int=7)), "--actor", "waiter"),
            "name the episodes, or give --latest, or --actor",
        ),
        ((str(UUID(int=7)), "--yes"), "--expectation, --status and --yes go with --actor"),
        (("x",), "'x' is no episode id"),
    ],
)
def test_words_that_cannot_work_are_one_line_before_any_server_is_asked(vigil, words, why):
    assert why in one_line(vigil.run("episodes", "cancel", *words, **NOWHERE), code=2)
