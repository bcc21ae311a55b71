"""Workflows at the command line, as an operator begins them, looks at them and decides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

import pytest

from tests.engine.stage import CLOCK
from tests.engine.workflows.flows import done, flow, given, needs
from tests.vigil.program import Vigil
from tests.vigil.test_command_line import one_line
from vigil.commands.workflows import print_instance
from vigil.printing.tables import terminal
from vigil.printing.workflow_tree import record_of, rows_of, tree_of

APP = '''
"""One actor that does what it is told, and a workflow that asks before it pays."""

from vigil import Actor, App, ConvergeResult, Strategy, Workflow
from vigil import abort, converge, observe, workflow


class Do(Strategy):
    def init(self, episode, trigger):
        return {"input": trigger.payload, "seen": False}

    def next_step(self, state, ctx):
        return converge() if state["seen"] else observe({"of": state["input"]})

    def handle_result(self, state, step, result):
        if state["input"].get("fails"):
            return abort("no_money", "as it was told")
        return {**state, "seen": True}

    def converge(self, state, ctx):
        return ConvergeResult(result={"of": state["input"]})


clerk = Actor("clerk")
for name in ("screen", "pay"):
    clerk.expect(name, Do, on=workflow())

review = Workflow("review", subject_key="client")
review.step("screen", "clerk", "screen", on_failure="pause",
            input=lambda trigger, prior: trigger.payload)
review.step("pay", "clerk", "pay", depends_on=["screen"], requires_approval=True,
            approvers=["ada"], input=lambda trigger, prior: {"sum": 7})
app = App(actors=[clerk], workflows=[review])
'''


TELLER = '''
"""Two steps that call the bank, which nobody may do in a dry run, and say what it answers."""

from vigil import Actor, App, ConvergeResult, Strategy, Tool, Workflow
from vigil import converge, tool_call, workflow


class Bank(Tool):
    side_effect = True

    async def call(self, action, args, ctx):
        raise AssertionError("a dry run calls nothing outside")


class Ask(Strategy):
    def init(self, episode, trigger):
        return {"said": None}

    def next_step(self, state, ctx):
        return converge() if state["said"] else tool_call("bank", "rate", {})

    def handle_result(self, state, step, result):
        return {"said": result}

    def converge(self, state, ctx):
        return ConvergeResult(summary=f"the bank says {state['said']}")


teller = Actor("teller", tools={"bank": Bank()})
quote = Workflow("quote")
for name in ("first", "second"):
    teller.expect(name, Ask, on=workflow())
    quote.step(name, "teller", name)
app = App(actors=[teller], workflows=[quote])
'''


@contextmanager
def serving(vigil: Vigil, app: str = APP) -> Iterator[None]:
    """A node and its rows are up meanwhile."""
    (vigil.folder / "watch.py").write_text(app)
    with vigil.running("node", "--app", "watch:app") as program:
        program.wait_said("node up")
        vigil.wait_for("workflows", "list", until=lambda _: True)
        yield


def started(vigil: Vigil, *options: str) -> str:
    done_ = vigil.run("workflows", "start", "review", *options)
    assert done_.returncode == 0, done_.stderr
    return done_.stdout.strip()


def step_is(step: str, status: str):
    return lambda row: {each["step_id"]: each["status"] for each in row["steps"]}[step] == status


def test_a_workflow_is_begun_looked_at_and_approved(connected):
    ada = ("--by", "ada")
    with serving(connected):
        id_ = started(connected, "--payload", '{"client": "ann"}', "--by", "ada")
        asking = connected.wait_for(
            "workflows", "show", id_, until=step_is("pay", "awaiting_approval")
        )
        connected.wait_for("workflows", "list", "--status", "blocked", until=bool)
        shown = connected.run("workflows", "show", id_[:8]).stdout
        hash_ = asking["steps"][1]["plan_hash"]
        wrong = connected.run("workflows", "approve", id_, "pay", "--hash", "0" * 8, *ada)
        unknown = connected.run("workflows", "approve", id_, "screen", *ada)
        unasked = connected.run("workflows", "approve", id_, "pay", *ada)
        eve = connected.run("workflows", "approve", id_, "pay", "--hash", hash_, "--by", "eve")
        approved = connected.run("workflows", "approve", id_[:8], "pay", "--hash", hash_, *ada)
        no_such = connected.run("workflows", "cancel", "0" if id_[0] != "0" else "1")
        again = connected.run("workflows", "approve", id_, "pay", "--hash", hash_)
        ended = connected.wait_for("workflows", "list", "--status", "done", until=bool)

    assert asking["status"] == "blocked"
    assert "has an id that begins with '" in one_line(no_such, code=1)
    assert [row.split()[:3] for row in shown.splitlines()[-2:]] == [
        ["screen", "done", "clerk.screen"],
        ["pay", "awaiting_approval", "clerk.pay"],
    ]
    assert "waits for a decision on another plan" in one_line(wrong, code=1)
    *plan, refusal = unasked.stderr.splitlines()
    assert unasked.returncode == 2
    assert f"give --hash {hash_[:8]}, or --yes" in refusal
    assert any(hash_ in line for line in plan), "people see what the hash is of"
    assert "may decide: ada; give your name with --by" in one_line(eve, code=1)
    assert approved.stdout == f"{id_}: pay approved by ada\n"
    assert "step 'pay'" in one_line(again, code=1)
    assert "does not wait any more: approved by ada at 20" in one_line(again, code=1)
    assert "does not ask for approval" in one_line(unknown, code=1)
    assert [(row["instance_id"], row["subject_value"], row["done"]) for row in ended] == [
        (id_, "ann", 2)
    ]


def test_a_step_is_approved_with_changes(connected):
    with serving(connected):
        id_ = started(connected, "--by", "ada")
        connected.wait_for("workflows", "show", id_, until=step_is("pay", "awaiting_approval"))
        connected.wait_for("inbox", until=bool)
        inbox = connected.run("inbox").stdout
        changes = ("--changes", '{"sum": null, "tip": 1}')
        decided = connected.run(
            "workflows", "approve", id_, "pay", "--yes", "--by", "ada", *changes
        )
        ended = connected.wait_for("workflows", "show", id_, until=step_is("pay", "done"))

    assert inbox.splitlines()[-1] == "  add --changes '{…}' to approve it with changes"
    assert decided.stdout == f"{id_}: pay approved by ada\n"
    assert ended["steps"][1]["result"] == {"of": {"tip": 1}}


def test_a_paused_step_is_skipped_and_an_instance_canceled(connected):
    key = ("--key", "k1")
    with serving(connected):
        id_ = started(connected, "--payload", '{"fails": true}', *key)
        connected.wait_for("workflows", "show", id_, until=step_is("screen", "paused"))
        unsaid = connected.run("workflows", "resume", id_, "screen")
        skipped = connected.run("workflows", "resume", id_, "screen", "--skip")
        connected.wait_for("workflows", "show", id_, until=step_is("pay", "awaiting_approval"))
        again = connected.run("workflows", "start", "review", *key)
        as_json = connected.ask("workflows", "start", "review", *key)
        canceled = connected.run("workflows", "cancel", id_, "--reason", "a typo")
        row = connected.wait_for(
            "workflows", "show", id_, until=lambda row: row["status"] == "canceled"
        )
        too_late = connected.run("workflows", "cancel", id_)

    assert again.stdout == f"{id_}\n"
    assert "review: nothing new began: key 'k1' was used before, at 20" in one_line(again, code=0)
    assert (as_json["instance_id"], as_json["is_new"]) == (id_, False)
    assert one_line(unsaid, code=2) == "vigil: give --retry or --skip\n"
    assert skipped.stdout == f"{id_}: screen skipped\n"
    assert canceled.stdout == f"{id_}: to be canceled\n"
    assert {each["step_id"]: each["status"] for each in row["steps"]} == {
        "screen": "skipped",
        "pay": "canceled",
    }
    assert (too_late.returncode, "canceled by now" in too_late.stderr) == (1, True)


def test_a_dry_run_gets_what_stands_for_the_outside_and_single_steps_get_their_own(connected):
    general, own = '{"tools": {"bank.rate": 5}}', '{"second": {"tools": {"bank.rate": 7}}}'
    (connected.folder / "own.json").write_text(own)
    options = ("--overrides", general, "--step-overrides", f"@{connected.folder}/own.json")
    with serving(connected, TELLER):
        ended = connected.ask("workflows", "start", "quote", "--dry-run", *options, "--wait")
        episodes = connected.wait_for("episodes", "list", until=_both_steps_are_done)

    assert (ended["mode"], ended["status"]) == ("dry_run", "done")
    assert _summaries(episodes) == {"first": "the bank says 5", "second": "the bank says 7"}


def _both_steps_are_done(episodes) -> bool:
    return set(_summaries(episodes)) == {"first", "second"}


def _summaries(episodes) -> dict[str, str]:
    """Return what the episodes of steps say that have ended, by expectation."""
    of_steps = [each for each in episodes if each["actor_id"] == "teller"]
    return {each["expectation_id"]: each["summary"] for each in of_steps if each["summary"]}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--overrides", "{}"), "overrides: only a dry run has any"),
        (("--step-overrides", '{"screen": {}}'), "step_overrides: only a dry run has any"),
        (("--step-overrides", "{}"), "step_overrides: only a dry run has any"),
        (("--dry-run", "--overrides", '{"tool": 1}'), "--overrides: no field 'tool'"),
        (("--dry-run", "--overrides", "["), "--overrides: not JSON"),
        (
            ("--dry-run", "--step-overrides", '{"screen": {"tool": 1}}'),
            "--step-overrides: screen: no field 'tool'",
        ),
        (("--dry-run", "--step-overrides", "[]"), "--step-overrides: not a JSON object"),
    ],
)
def test_overrides_that_cannot_work_are_refused_in_one_line(standing, options, why):
    assert why in one_line(standing.run("workflows", "start", "review", *options), code=2)


def test_a_workflow_that_nobody_knows_is_refused_while_a_node_is_up(connected):
    with serving(connected):
        done_ = connected.run("workflows", "start", "rewiev")
    assert "did you mean review?" in one_line(done_, code=1)


def test_an_instance_that_is_not_there_is_said_in_one_line(standing):
    done_ = standing.run("workflows", "show", "00000000-0000-0000-0000-000000000001")
    assert "there is no such instance" in one_line(done_, code=1)


def test_the_graph_shows_each_step_below_what_it_waits_for_last(capsys):
    made = flow("a", "b", ("c", needs("a")), ("d", needs("b", "c")))
    terminal().print(tree_of(given(made).when(done("a")).flow.instance))
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines[1:]] == [
        "├── a  done",
        "│   └── c  running",
        "│       └── d  pending  after b, too",
        "└── b  running",
    ]


def test_a_step_of_an_instance_with_a_budget_shows_what_its_newest_attempt_may_spend(capsys):
    made = flow("a", ("b", needs("a")), budget_usd=2)
    instance = given(made, dollars={"a": "0.50"}).flow.instance
    rows = rows_of(instance)
    assert {each["step_id"]: each["budget_usd"] for each in rows} == {
        "a": Decimal("0.50"),
        "b": None,
    }
    print_instance(record_of(instance), rows, now=CLOCK.now())
    _, shown = capsys.readouterr().out.split("Steps\n")
    heading, row, *_ = shown.splitlines()
    assert "at most (USD)" in heading
    assert "0.50" in row


@pytest.mark.parametrize("command", [("show",), ("cancel",), ("resume", "a", "--skip")])
def test_what_is_no_id_is_a_mistake(vigil, command):
    name, *rest = command
    done_ = vigil.run("workflows", name, "nonsense", *rest)
    assert (done_.returncode, "is no instance id" in done_.stderr) == (2, True)
