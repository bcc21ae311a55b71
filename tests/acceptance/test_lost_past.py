"""A log that has lost its past stops all that runs on it, until a person has accepted the loss."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import nats as nats_py
import pytest

from tests.acceptance.cluster import Cluster, wait_until
from tests.vigil.program import Vigil
from vigil.errors import EXIT_LOST

EPISODES: Final = 5
STOPPED_S: Final = 5.0
"""How soon everything of a stack has ended, in seconds."""

NODE: Final = ("node", "--app", "tests.acceptance.app:app")

DONE: Final = "select 1 from episodes where status = 'done'"


async def ask(cluster: Cluster, operation: str, request: Any = None) -> Any:
    """Ask the server's API as an operator does."""
    client = await nats_py.connect(cluster.nats_url)
    try:
        data = json.dumps(request).encode() if request else b""
        answer = json.loads((await client.request(f"$JS.API.{operation}", data)).data)
        assert "error" not in answer, answer
        return answer
    finally:
        await client.close()


async def purge(cluster: Cluster) -> None:
    """As `nats stream purge vigil-journal`."""
    await ask(cluster, "STREAM.PURGE.vigil-journal")


async def make_anew(cluster: Cluster) -> None:
    """As `nats stream rm`, and `nats stream add` with the same configuration."""
    config = (await ask(cluster, "STREAM.INFO.vigil-journal"))["config"]
    await ask(cluster, "STREAM.DELETE.vigil-journal")
    await ask(cluster, "STREAM.CREATE.vigil-journal", config)


async def delete_registry(cluster: Cluster) -> None:
    """The bucket that has the marks."""
    await ask(cluster, "STREAM.DELETE.KV_vigil-registry")


async def place(cluster: Cluster, first: int, count: int) -> None:
    orders = {f"e{n}": {"order": f"o{n}", "late_days": 1} for n in range(first, first + count)}
    await cluster.publish("order.placed", orders)


def command(cluster: Cluster) -> Vigil:
    servers = {"VIGIL_NATS_URL": cluster.nats_url, "VIGIL_POSTGRES_DSN": cluster.postgres.dsn}
    return Vigil(cluster.directory, **servers)


async def wait_ended(*ended: Callable[[], bool], since_s: float) -> None:
    left_s = STOPPED_S - (time.monotonic() - since_s)
    await wait_until(lambda: all(each() for each in ended), "everything has ended", most_s=left_s)


def refused(vigil: Vigil, *arguments: str) -> str:
    """Return the line that a command is refused with."""
    done = vigil.run(*arguments)
    assert done.returncode == EXIT_LOST, done.stderr
    lines = done.stderr.strip().splitlines()
    assert "`vigil recover --accept-loss`" in lines[-1], done.stderr
    return lines[-1]


def problem_of(vigil: Vigil, what: str) -> Any:
    """Return what `vigil doctor` says is wrong with something."""
    done = vigil.run("doctor", "--json")
    assert done.returncode == 1, done.stderr
    checks = json.loads(done.stdout)["checks"]
    return next(each for each in checks if (each["what"], each["status"]) == (what, "problem"))


async def test_a_journal_that_is_emptied_by_hand_stops_all_and_goes_on_once_a_person_agrees(
    cluster: Cluster,
):
    vigil = command(cluster)
    with vigil.running("project", VIGIL_NODE="p1") as projector:
        reacting = await cluster.start("n1", "--no-project")
        other = await cluster.start("n2", "--no-project", "--no-react", "--processes", "2")
        await place(cluster, 0, EPISODES)
        await cluster.wait_rows(DONE, EPISODES, most_s=30)

        since_s = time.monotonic()
        await purge(cluster)
        await wait_ended(
            reacting.has_ended,
            other.has_ended,
            lambda: projector.process.poll() is not None,
            since_s=since_s,
        )
        assert [reacting.wait(), other.wait(), projector.process.wait(1)] == [EXIT_LOST] * 3
        assert "stream vigil-journal was emptied up to" in projector.said

    for arguments in (("publish", "order.placed", "{}"), NODE, ("project",)):
        assert "stream vigil-journal was emptied up to" in refused(vigil, *arguments)
    assert "vigil recover --accept-loss" in problem_of(vigil, "stream vigil-journal")["remedy"]

    seen = vigil.ask("recover", "--accept-loss", "--dry-run")
    (loss,) = seen["losses"]
    assert loss["counts"]["episode"] == EPISODES
    assert len(loss["first"]) == EPISODES
    assert vigil.run("recover", "--accept-loss").returncode == 2  # There is nobody to ask.

    done = vigil.run("recover", "--accept-loss", "--yes", "--by", "ann", "--reason", "a drill")
    assert done.returncode == 0, done.stderr
    assert f"episode {EPISODES}" in done.stdout
    assert "accepted by ann" in done.stdout
    assert "has all that is known" in vigil.run("recover", "--accept-loss").stdout

    node = await cluster.start("n3")
    await place(cluster, EPISODES, EPISODES)
    await cluster.wait_rows(DONE, 2 * EPISODES, most_s=30)
    assert vigil.run("doctor").returncode == 0
    assert node.stop() == 0


@pytest.mark.parametrize("act", [make_anew, delete_registry])
async def test_whatever_is_deleted_by_hand_stops_its_nodes_and_is_not_made_anew(
    cluster: Cluster, act: Callable[[Cluster], Awaitable[None]]
):
    vigil = command(cluster)
    node = await cluster.start("n1")
    await place(cluster, 0, EPISODES)
    await cluster.wait_rows(DONE, EPISODES, most_s=30)
    assert vigil.run("mode", "n9", "disabled", "--by", "ann").returncode == 0

    since_s = time.monotonic()
    await act(cluster)
    await wait_ended(node.has_ended, since_s=since_s)
    assert node.wait() == EXIT_LOST
    refused(vigil, *NODE)

    done = vigil.run("recover", "--accept-loss", "--yes")
    assert done.returncode == 0, done.stderr
    (ordered,) = vigil.ask("mode", "n9")["nodes"]
    assert (ordered["mode"], ordered["by"]) == ("disabled", "ann")
    node = await cluster.start("n2")
    await place(cluster, EPISODES, EPISODES)
    await cluster.wait_rows(DONE, 2 * EPISODES, most_s=30)
    assert node.stop() == 0


async def test_servers_that_come_back_with_an_old_copy_are_noticed_by_a_node_and_by_the_rows(
    cluster: Cluster,
):
    """All of their data is older, also what is noted there."""
    vigil, store = command(cluster), cluster.directory / "nats" / "store"
    node = await cluster.start("n1")
    await place(cluster, 0, EPISODES)
    await cluster.wait_rows(DONE, EPISODES, most_s=30)
    cluster.nats.stop()
    shutil.copytree(store, cluster.directory / "copy")
    cluster.nats.restart()
    await place(cluster, EPISODES, EPISODES)
    await cluster.wait_rows(DONE, 2 * EPISODES, most_s=30)

    cluster.nats.stop()
    shutil.rmtree(store)
    shutil.copytree(cluster.directory / "copy", store)
    cluster.nats.restart()
    await wait_ended(node.has_ended, since_s=time.monotonic())
    assert node.wait() == EXIT_LOST
    await ask(cluster, "STREAM.PURGE.KV_vigil-registry", {"filter": "$KV.vigil-registry.lost.>"})

    assert "were known" in refused(vigil, "project")  # By the rows alone: nothing is marked.
    done = vigil.run("recover", "--accept-loss", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"episode {EPISODES}" in done.stdout
    node = await cluster.start("n2")
    await place(cluster, 2 * EPISODES, EPISODES)
    await cluster.wait_rows(DONE, 3 * EPISODES, most_s=30)
    assert node.stop() == 0


async def test_what_the_rows_know_is_not_made_anew_on_servers_that_have_nothing(cluster: Cluster):
    node = await cluster.start("n1")
    await place(cluster, 0, EPISODES)
    await cluster.wait_rows(DONE, EPISODES, most_s=30)
    assert node.stop() == 0
    cluster.nats.stop()
    shutil.rmtree(cluster.directory / "nats" / "store")
    cluster.nats.restart()

    vigil = command(cluster)
    assert "vigil-journal is gone" in refused(vigil, *NODE)
    assert (await ask(cluster, "STREAM.NAMES"))["total"] == 0
    assert vigil.run("recover", "--accept-loss", "--yes").returncode == 0
    node = await cluster.start("n2")
    await place(cluster, EPISODES, EPISODES)
    await cluster.wait_rows(DONE, 2 * EPISODES, most_s=30)
    assert node.stop() == 0
