"""Episodes that wait for other code, as an operator sees and ends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.vigil.program import Vigil

APP = """
from vigil import Actor, App, manual


async def look(args, ctx):
    return "seen"


clerk = Actor("clerk")


@clerk.expectation(on=manual())
async def looks(ctx, trigger):
    await ctx.call("disk.look")
    await ctx.wait("go")


app = App(actors=[clerk], tools={"disk": {"look": look, "measure": look}})
"""


@contextmanager
def serving(vigil: Vigil, source: str) -> Iterator[None]:
    """A node with that code is up meanwhile."""
    (vigil.folder / "watch.py").write_text(source)
    with vigil.running("node", "--app", "watch:app") as program:
        program.wait_said("node up")
        vigil.wait_for("episodes", "list", until=lambda _: True)
        yield


def is_parked(row):
    return row["blocked_by"] == "nondeterministic_replay"


def test_parked_episodes_are_in_the_inbox_and_are_forked_and_canceled_all_at_once(connected):
    with serving(connected, APP):
        ids = [connected.run("fire", "clerk", "looks").stdout.strip() for _ in range(2)]
        for id_ in ids:
            connected.wait_for(
                "episodes", "show", id_, until=lambda row: row["blocked_by"] == "wait"
            )
    with serving(connected, APP.replace('"disk.look"', '"disk.measure"')):
        connected.run("episodes", "resolve", "go", "--by", "ada")
        for id_ in ids:
            connected.wait_for("episodes", "show", id_, until=is_parked)
        inbox = connected.ask("inbox")
        shown = connected.run("episodes", "show", ids[0]).stdout
        forking = ("episodes", "fork", "--actor", "clerk", "--at", "0")
        unsure = connected.run(*forking)
        forked = connected.run(*forking, "--yes")
        again = connected.run(*forking, "--yes")
        canceling = ("episodes", "cancel", "--actor", "clerk", "--status", "parked")
        canceled = connected.run(*canceling, "--yes", "--wait")
        left = connected.ask("episodes", "list", "--status", "blocked")

    assert {(each["kind"], each["id"]) for each in inbox} == {
        ("nondeterministic_replay", id_) for id_ in ids
    }
    assert all("call 1 was tool_call disk.look" in each["summary"] for each in inbox)
    assert "the replay asks for tool_call disk.measure" in " ".join(shown.split())
    assert (unsure.returncode, "give --yes" in unsure.stderr) == (2, True)
    assert forked.stdout == again.stdout, "the same forks"
    news = {line.rpartition(" ")[2] for line in forked.stdout.splitlines()}
    assert {line.partition(":")[0] for line in forked.stdout.splitlines()} == set(ids)
    assert canceled.stdout == "2 canceled\n"
    assert {each["episode_id"] for each in left} == news
