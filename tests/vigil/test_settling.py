"""A call of unknown outcome, from the command line: seen in the inbox, settled, gone on with."""

from __future__ import annotations

import pytest

from tests.vigil.test_command_line import one_line
from tests.vigil.test_forks import ended

APP = '''
"""One actor that pays, and gives up a payment that takes too long."""

import asyncio

from vigil import Actor, App, ConvergeResult, manual, tool


@tool(side_effect=True)
async def pay(amount: int) -> int:
    await asyncio.sleep(3600)
    return amount


async def paid(ctx, trigger):
    async with asyncio.timeout(0.1):
        return ConvergeResult(summary=f"receipt {await ctx.call(pay, amount=3)}")


payer = Actor("payer")
payer.expect("paid", paid, on=manual())
app = App(actors=[payer], tools=[pay])
'''


@pytest.fixture
def served(connected, tmp_path):
    """The command, while a node runs."""
    (tmp_path / "payer.py").write_text(APP)
    with connected.running("node", "--app", "payer:app") as node:
        node.wait_said("node up")
        connected.wait_for("episodes", "list", until=lambda rows: rows == [])
        yield connected


def test_a_call_of_unknown_outcome_waits_in_the_inbox_until_a_person_has_settled_it(served):
    done = served.run("fire", "payer", "paid", "--wait")
    id_ = done.stdout.split()[0]
    (letter,) = served.wait_for("inbox", until=bool)
    assert letter["kind"] == "dead_letter"
    assert letter["summary"].startswith("outcome_unknown: call 1, pay.")
    assert f"`vigil episodes settle {id_}`" in letter["summary"]
    assert served.ask("dead", "show", letter["id"])["what_to_do"] == f"vigil episodes settle {id_}"

    words = ("--happened", "--result", "7", "--by", "ann", "--reason", "the bank has it")
    fork, end = ended(served, "episodes", "settle", id_, *words)

    assert end == "done: receipt 7"
    row = served.ask("episodes", "show", fork)
    assert (row["forked_from"], row["forked_by"]) == (id_, "ann")
    (step,) = served.ask("episodes", "steps", fork)
    assert step["args_redacted"] == {
        "settled": "happened",
        "by": "ann",
        "reason": "the bank has it",
    }
    served.wait_for("inbox", until=lambda rows: rows == [])

    refused = served.run("episodes", "settle", id_, "--again", "--by", "bob")
    assert f"ann has said happened: it goes on as {fork}" in one_line(refused, code=1)


def test_what_became_of_the_call_must_be_said(served):
    for words in ((), ("--happened", "--again")):
        done = served.run("episodes", "settle", "7ca1", *words)
        assert "--happened, --not-happened or --again" in one_line(done, code=2)
    done = served.run("episodes", "settle", "7ca1", "--happened")
    assert "--happened needs --result" in one_line(done, code=2)
