"""One of two has approved when node and server are killed: it is decided once and done once."""

from __future__ import annotations

import signal

import pytest

from projections.embedded import EmbeddedPostgres
from streams.embedded import EmbeddedNats
from tests.vigil.program import Vigil
from vigil.client import SyncClient
from vigil.client.types import ApprovalTarget
from vigil.errors import Trouble

APP = '''
from pathlib import Path

from vigil import Actor, App, ConvergeResult, Route, Workflow, event, manual, propose_output, tool
from vigil import workflow

DONE = Path(__file__).with_name("done.txt")


def note(what):
    with DONE.open("a") as file:
        file.write(f"{what}\\n")


@tool(side_effect=True)
async def deploy(version: str) -> str:
    """Deploy a version."""
    note(f"deployed {version}")
    return version


ops = Actor("ops", tools=[deploy])


@ops.expectation(on=manual())
async def release(ctx, trigger):
    answer = await ctx.approval({"deploy": "2.7"}, summary="deploy 2.7", quorum=2)
    await ctx.call(deploy, version="2.7")
    return ConvergeResult(summary=f"{answer.status} by {answer.by}")


@ops.expectation(on=manual())
async def announce(ctx, trigger):
    out = propose_output(
        "mail", {"says": "2.7 is out"}, dedupe_key="mail", requires_approval=True, quorum=2
    )
    return ConvergeResult(summary="announced", outputs=[out])


@ops.expectation(on=workflow())
async def pay(ctx, trigger):
    note("paid")
    return ConvergeResult(summary="paid")


async def mail(sent):
    note("mailed")
    return "mail-1"


order = Workflow("order", on=event("order.placed"))
order.step("pay", "ops", "pay", requires_approval=True, quorum=2)

app = App(actors=[ops], workflows=[order], outputs={"mail": Route(mail)})
'''

NODE = ("node", "--app", "half:app", "--node-name")
WAITING = "select kind, id, expectation_id from inbox"


@pytest.fixture
def nats(tmp_path):
    with EmbeddedNats(tmp_path / "nats") as nats:
        yield nats


@pytest.fixture
def vigil(nats, tmp_path_factory):
    folder = tmp_path_factory.mktemp("half")
    (folder / "half.py").write_text(APP)
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as postgres:
        yield Vigil(folder, VIGIL_NATS_URL=nats.url, VIGIL_POSTGRES_DSN=postgres.dsn)


def client_of(vigil: Vigil, by: str) -> SyncClient:
    where = {"nats_url": "VIGIL_NATS_URL", "postgres_dsn": "VIGIL_POSTGRES_DSN"}
    return SyncClient(
        **{name: vigil.environ[each] for name, each in where.items()}, by=by, create_stack=True
    )


def targets(rows) -> list[ApprovalTarget]:
    kinds = {"approval": "episode", "output": "output", "workflow_step": "step"}
    return [
        ApprovalTarget(
            kinds[row["kind"]], row["id"], "pay" if row["kind"] == "workflow_step" else ""
        )
        for row in rows
    ]


@pytest.mark.nightly
def test_what_half_have_approved_is_decided_once_and_done_once_whatever_dies(vigil, nats):
    with vigil.running(*NODE, "n1") as node:
        with client_of(vigil, "zoe") as client:
            client.nodes.wait_ready("ops", timeout_s=60)
            client.fire("ops", "release", {})
            client.fire("ops", "announce", {})
            client.publish("order.placed", {})
        asked = targets(vigil.wait_for("sql", WAITING, until=lambda rows: len(rows) == 3))
        with client_of(vigil, "ann") as client:
            for each in asked:
                client.approvals.decide(each, "approve")
        node.stop(signal.SIGKILL)
        nats.kill()
    nats.restart()
    with vigil.running(*NODE, "n2"), client_of(vigil, "bob") as bob:
        bob.nodes.wait_ready("ops", timeout_s=60)
        with client_of(vigil, "ann") as ann:
            for each in asked:
                with pytest.raises(Trouble, match="'ann' has approved it already"):
                    ann.approvals.decide(each, "approve")
        for each in asked:
            assert "approved by ann, bob" in str(bob.approvals.decide(each, "approve").done)
        with client_of(vigil, "cid") as cid:
            for each in asked:
                with pytest.raises(Trouble, match="does not wait any more"):
                    cid.approvals.decide(each, "deny")
        vigil.wait_for(
            "sql",
            "select 1 from episodes where status in ('queued', 'running', 'blocked')",
            until=lambda rows: not rows,
        )
        vigil.wait_for("sql", "select 1 from outputs where status = 'delivered'", until=bool)
    done = sorted((vigil.folder / "done.txt").read_text().splitlines())
    assert done == ["deployed 2.7", "mailed", "paid"]
