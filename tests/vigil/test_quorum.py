"""What two people have to approve, and who has fired it may not, on real servers."""

from __future__ import annotations

import pytest

from tests.vigil.test_approving import decide, ended
from tests.vigil.test_command_line import one_line
from vigil.client.sync import SyncClient
from vigil.errors import Trouble

APP = '''
"""One actor that asks two people, but not the one who has fired it."""

from vigil import Actor, App, ConvergeResult, manual

dba = Actor("dba")


@dba.expectation(on=manual())
async def shrink(ctx, trigger):
    answer = await ctx.approval(
        {"drop": "t1"}, approvers=["ann", "bob", "zoe", "group:oncall"], quorum=2,
        requester_may_approve=False,
    )
    return ConvergeResult(summary=f"approved by {answer.by}")


app = App(actors=[dba])
'''


def client_of(vigil, by: str) -> SyncClient:
    return SyncClient(
        nats_url=vigil.environ["VIGIL_NATS_URL"],
        postgres_dsn=vigil.environ["VIGIL_POSTGRES_DSN"],
        stack=vigil.environ["VIGIL_STACK"],
        by=by,
    )


def test_two_others_have_to_approve_what_somebody_has_fired(connected):
    (connected.folder / "watch.py").write_text(APP)
    with connected.running("node", "--app", "watch:app") as program:
        program.wait_said("node up")
        connected.wait_for("episodes", "list", until=lambda _: True)
        added = connected.run("users", "add", "cid", "--no-password", "--group", "oncall")
        assert added.returncode == 0, added.stderr
        id_ = connected.run("fire", "dba", "shrink", "--by", "zoe").stdout.strip()
        connected.wait_for("inbox", until=bool)

        refused = "'zoe' has asked for it, and may not decide on it; somebody else has to"
        assert refused in one_line(
            decide(connected, "approve", id_, "--yes", "--by", "zoe"), code=1
        )
        with client_of(connected, "zoe") as client:
            for verdict in ("approve", "deny"):
                with pytest.raises(Trouble, match=refused):
                    client.approvals.decide(id_, verdict)

        done = decide(connected, "approve", id_, "--yes", "--by", "cid")
        assert done.stdout == f"{id_}: approved by cid; 1 of 2 approved: cid\n", done.stderr
        (waiting,) = connected.wait_for("inbox", until=lambda rows: rows[0]["approved_by"])
        assert (waiting["quorum"], waiting["approved_by"]) == (2, ["cid"])
        assert "1 of 2 approved: cid" in connected.run("inbox").stdout
        assert "1 of 2 approved: cid" in connected.run("episodes", "show", id_).stdout

        again = decide(connected, "approve", id_, "--yes", "--by", "cid")
        says = "'cid' has approved it already; somebody else has to as well"
        assert says in one_line(again, code=1)
        done = decide(connected, "approve", id_, "--yes", "--by", "ann")
        assert done.stdout == f"{id_}: approved by cid, ann\n", done.stderr
        assert ended(connected, id_) == ("done", "approved by cid, ann")
