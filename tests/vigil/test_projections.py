"""The tables as a whole, as an operator looks at them and makes them anew."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from projections.postgres.pool import connect
from tests.vigil.program import Vigil

HOSTS = 30


@pytest.fixture
def filled(connected: Vigil, write_app) -> Vigil:
    """A stack with episodes and findings, and the rows of them; its node has ended."""
    write_app()
    with connected.running("node", "--app", "watch:app") as program:
        program.wait_said("node up")
        for number in range(HOSTS):
            connected.run("publish", "host.seen", json.dumps({"host": f"h{number}"}))
        connected.wait_for(
            "findings", "list", "--limit", "100", until=lambda rows: len(rows) == HOSTS
        )
        connected.wait_for(
            "projections",
            "status",
            until=lambda view: not any(each["lag"] for each in view["projections"]),
        )
        assert program.stop(signal.SIGTERM) == 0
    return connected


def execute(vigil: Vigil, text: str) -> None:
    async def done() -> None:
        async with await connect(vigil.environ["VIGIL_POSTGRES_DSN"]) as pool:
            await pool.execute(text, vigil.environ["VIGIL_STACK"])

    asyncio.run(done())


@pytest.mark.nightly
def test_the_tables_are_verified_and_rebuilt_after_a_kill_too(filled: Vigil):
    view = filled.ask("projections", "status")
    assert {each["projection"] for each in view["projections"]} >= {"journal", "state", "dead"}
    assert view["rebuilds"] == []
    right = filled.run("projections", "verify")
    assert right.returncode == 0, right.stderr
    assert "every row is what the journal says" in right.stdout

    execute(filled, "UPDATE findings SET summary = 'wrong' WHERE stack = $1")
    wrong = filled.run("projections", "verify")
    assert wrong.returncode == 1
    assert "findings\n  finding_key=host:h0, raise_no=1\n  column:  summary\n" in wrong.stdout

    with filled.running("projections", "rebuild", "--yes", "--most-per-s", "20") as program:
        program.wait_said("events/s")
        program.stop(signal.SIGKILL)
    (left,) = filled.ask("projections", "status")["rebuilds"]
    assert left["state"] == "unfinished"

    dry = filled.ask("projections", "rebuild", "--dry-run")
    assert dry["is_resumed"]
    assert [(each["table"], each["wrong"]) for each in dry["changes"]] == [("findings", HOSTS)]
    done = filled.ask("projections", "rebuild", "--yes", "--keep", "1h")
    assert done["replaced_in"].startswith("vigil_replaced_")
    assert filled.run("projections", "verify").returncode == 0
    (kept,) = filled.ask("projections", "status")["rebuilds"]
    assert (kept["state"], kept["schema"]) == ("replaced", done["replaced_in"])
    again = filled.run("projections", "rebuild", "--yes")
    assert "no row differs" in again.stdout


def test_a_rebuild_asks_first(standing: Vigil):
    done = standing.run("projections", "rebuild")
    assert done.returncode == 2
    assert "--yes" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [(("--keep", "soon"), "keep"), (("--most-per-s", "0"), "at least 1 event")],
)
def test_what_cannot_be_meant_is_a_mistake(standing: Vigil, arguments, why):
    done = standing.run("projections", "rebuild", "--yes", *arguments)
    assert done.returncode == 2
    assert why in done.stderr


def test_without_tables_there_is_nothing_to_rebuild(standing: Vigil):
    done = standing.run("projections", "verify", VIGIL_POSTGRES_DSN="postgresql://127.0.0.1:1/x")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
