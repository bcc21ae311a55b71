"""What an operator decides about an episode that asks, and what they are told, on real servers."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

import pytest

from engine.operations.decide_request import ApprovalTarget
from streams.json import raw
from streams.model.commands import Verdict
from streams.model.events import EpisodeResolved, Resolution, StepKind, StepRecorded
from streams.model.waits import EditableCalls, PlanForm, Wait
from tests.mistakes import test_commands as typed
from tests.vigil.journal import CLOCK, KEPT, PLAN_HASH, Journal, approval
from tests.vigil.program import NOWHERE, RUN_S_MAX, Running, Vigil
from tests.vigil.test_command_line import one_line
from vigil.asking.approval_requests import changed, patched

ID = str(UUID(int=7))
APP = '''
"""One actor that asks before it drops a table, and waits until it is paid."""

from vigil import Actor, App, ConvergeResult, Failure, Strategy, approval, converge, event, wait


class Shrink(Strategy):
    def init(self, episode, trigger):
        return {"table": trigger.payload["table"], "answer": ""}

    def next_step(self, state, ctx):
        if state["answer"]:
            return converge()
        plan, who = {"drop": state["table"], "keep": "a copy"}, ("ann", "bob")
        return approval(plan, summary="drop a table", approvers=who, editable=True)

    def handle_result(self, state, step, result):
        said = result.detail if isinstance(result, Failure) else f"approved by {result['by']}"
        edited = "" if isinstance(result, Failure) or "plan" not in result else result["plan"]
        return {**state, "answer": f"{said} {edited}".rstrip()}

    def converge(self, state, ctx):
        return ConvergeResult(summary=state["answer"])


class Pay(Strategy):
    def init(self, episode, trigger):
        return {"ref": trigger.payload["ref"], "paid": None}

    def next_step(self, state, ctx):
        return wait(state["ref"]) if state["paid"] is None else converge()

    def handle_result(self, state, step, result):
        return {**state, "paid": result}

    def converge(self, state, ctx):
        return ConvergeResult(summary=f"paid {state['paid']}")


dba = Actor("dba")
dba.expect("shrink", Shrink, on=event("disk.full"))
dba.expect("pay", Pay, on=event("bill.came"))
app = App(actors=[dba])
'''


@pytest.fixture
def journal(standing: Vigil) -> Journal:
    """The log of a stack that no node works in."""
    return Journal(standing)


@contextmanager
def serving(vigil: Vigil) -> Iterator[Running]:
    """A node and its rows are up meanwhile."""
    (vigil.folder / "watch.py").write_text(APP)
    with vigil.running("node", "--app", "watch:app") as program:
        program.wait_said("node up")
        vigil.wait_for("episodes", "list", until=lambda _: True)
        yield program


def fired(vigil: Vigil, expectation: str, payload: str) -> str:
    return vigil.run("fire", "dba", expectation, "--payload", payload).stdout.strip()


def blocked(vigil: Vigil, expectation: str, payload: str) -> str:
    """Have an episode wait, and return its id once the rows show that."""
    id_ = fired(vigil, expectation, payload)
    vigil.wait_for("episodes", "show", id_, until=lambda row: row["status"] == "blocked")
    return id_


def ended(vigil: Vigil, id_: str) -> tuple[str, str]:
    row = vigil.wait_for("episodes", "show", id_, until=lambda row: row["finished_at"])
    return row["status"], row["summary"]


def decide(vigil: Vigil, *words: str) -> subprocess.CompletedProcess[str]:
    return vigil.run("episodes", *words)


def answer(resolution: Resolution, *, by: str, reason: str = "") -> tuple:
    """Return the events of somebody's answer."""
    step = StepRecorded(step_no=1, kind=StepKind.APPROVAL, fingerprint="f")
    resolved = EpisodeResolved(
        step_no=1, resolution=resolution, by=by, reason=reason, decision_id="theirs"
    )
    return step, resolved


@pytest.mark.parametrize("verdict", [each.value for each in Verdict])
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("x",), "'x' is no episode id"),
        ((ID, "--hash", "0123456"), "--hash: '0123456' is not 8 to 64 hex digits"),
        ((ID, "--hash", "01234567x"), "--hash: '01234567x' is not"),
        ((ID, "--hash", "0" * 65), "is not 8 to 64 hex digits"),
        ((ID, "--by", " "), "--by: give a name"),
    ],
)
def test_words_that_cannot_work_are_one_line_before_any_server_is_asked(vigil, verdict, words, why):
    assert why in one_line(vigil.run("episodes", verdict, *words, **NOWHERE), code=2)


def test_an_episode_that_nobody_knows_is_one_line_with_a_hint(journal, standing):
    line = one_line(decide(standing, "approve", ID, "--yes"), code=1)
    assert f"no episode {ID} in stack" in line
    assert "`vigil episodes list` shows" in line


def test_an_episode_that_waits_for_something_else_asks_nobody(journal, standing):
    id_ = journal.block(wait=Wait(ref="payment:42"))
    line = one_line(decide(standing, "approve", id_, "--yes"), code=1)
    assert line == f"vigil: episode {id_} does not ask for approval\n"


def test_a_decision_on_another_plan_is_refused_with_the_hash_of_the_one_that_waits(
    journal, standing
):
    id_ = journal.block(approval())
    line = one_line(decide(standing, "approve", id_, "--hash", "ffffffff"), code=1)
    assert f"waits for a decision on another plan: {PLAN_HASH}" in line
    assert not journal.has_command(id_)


def test_only_those_who_may_decide_are_asked_to(journal, standing):
    id_ = journal.block(approval(approvers=("ann", "bob")))
    line = one_line(decide(standing, "deny", id_, "--yes", "--by", "eve"), code=1)
    assert typed.NOT_AN_APPROVER.said in line
    assert not journal.has_command(id_)


def test_a_decision_after_the_expiry_is_refused(journal, standing):
    id_ = journal.block(approval(expires_at=CLOCK.now() - timedelta(hours=1)))
    assert "it expired at 20" in one_line(decide(standing, "approve", id_, "--yes"), code=1)
    assert not journal.has_command(id_)


def test_a_second_decision_is_told_of_the_first(journal, standing):
    id_ = journal.block(approval())
    denied = answer(Resolution.DENIED, by="bob", reason="too early")
    journal.write(journal.stack.episode(id_), *denied)
    line = one_line(decide(standing, "approve", id_, "--yes"), code=1)
    assert f"episode {id_} {typed.DECIDED.said}" in line
    assert line.endswith("UTC (too early)\n")


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_where_nobody_can_be_asked_the_plan_is_shown_and_then_its_hash(journal, standing, verdict):
    id_ = journal.block(approval())
    done = decide(standing, verdict, id_)
    *shown, line = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert '"drop": "t1"' in "\n".join(shown)
    assert line == typed.NO_TERMINAL.said
    assert not journal.has_command(id_)


def test_where_nobody_can_be_asked_what_a_plan_becomes_is_shown(journal, standing):
    id_ = journal.block(approval(editable=True))
    done = decide(standing, "approve", id_, "--changes", '{"drop": "t2"}')
    assert (done.returncode, done.stdout) == (2, "")
    assert '"drop": "t1"' in done.stderr
    assert '"drop": "t2"' in done.stderr


def test_a_decision_that_no_node_can_rule_on_now_waits_for_one(journal, standing):
    id_ = journal.block(approval())
    done = decide(standing, "approve", id_, "--hash", "01234567")
    assert one_line(done, code=1) == (
        "vigil: no node that is up runs actor 'dba' with expectation 'shrink'"
        f" (none is up at all); {KEPT}\n"
    )
    assert done.stdout == f"{id_}: sent; a node decides on it\n"
    assert journal.has_command(id_)


def test_why_nobody_applies_a_decision_is_said_also_to_who_does_not_wait(journal, standing):
    journal.pretend_node(revisions={"other": 0})
    id_ = journal.block(approval())
    done = decide(standing, "deny", id_, "--yes", "--no-wait")
    assert (done.returncode, done.stdout) == (0, f"{id_}: sent; a node decides on it\n")
    assert "runs actor 'dba' with expectation 'shrink' (idle: it does not have it)" in done.stderr


def test_a_decision_need_not_be_waited_for(journal, standing):
    journal.pretend_node()
    id_ = journal.block(approval())
    done = decide(standing, "deny", id_, "--yes", "--no-wait")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"{id_}: sent; a node decides on it\n",
        "",
    )


def test_a_decision_is_waited_for_no_longer_than_one_likes(journal, standing):
    journal.pretend_node()
    id_ = journal.block(approval())
    line = one_line(decide(standing, "deny", id_, "--yes", "--timeout", "0"), code=1)
    assert line == f"vigil: {id_}: not on the journal in time; a node may still decide on it\n"


def test_a_plan_that_nobody_looks_at_again_cannot_be_changed(journal, standing):
    id_ = journal.block(approval())
    line = one_line(decide(standing, "approve", id_, "--yes", "--changes", "{}"), code=1)
    assert f"episode {id_}: its plan cannot be changed" in line
    assert not journal.has_command(id_)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ('{"servise": "db"}', "restart(): there is no argument 'servise'; did you mean service?"),
        ('"db"', "'db' is no arguments; write {name: value}"),
    ],
)
def test_changes_that_are_none_of_the_arguments_of_a_call_are_refused_in_one_line(
    journal, standing, changes, problem
):
    calls = EditableCalls(form=PlanForm.ARGUMENTS, arguments={"restart": ("service",)})
    asked = approval(plan=raw({"service": "web"}), editable=True, calls=calls)
    id_ = journal.block(asked)
    line = one_line(decide(standing, "approve", id_, "--yes", "--changes", changes), code=1)
    assert line == f"vigil: episode {id_}: {problem}\n"
    assert not journal.has_command(id_)


def test_changes_that_are_no_json_are_refused_before_any_server_is_asked(vigil):
    done = vigil.run("episodes", "approve", ID, "--changes", "{", **NOWHERE)
    assert "--changes: not JSON" in one_line(done, code=2)


def test_a_plan_is_changed_by_who_approves_it(connected):
    with serving(connected):
        id_ = blocked(connected, "shrink", '{"table": "t1"}')
        changes = '{"drop": "t2", "keep": null, "why": {"ticket": 7}}'
        done = decide(connected, "approve", id_, "--yes", "--by", "ann", "--changes", changes)
        end = ended(connected, id_)

    assert done.returncode == 0, done.stderr
    assert end == ("done", "approved by ann {'drop': 't2', 'why': {'ticket': 7}}")


@pytest.mark.parametrize(
    ("plan", "changes", "becomes"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": 1, "b": 2}, {"b": None}, {"a": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": None, "d": [1]}}, {"a": {"b": 1, "d": [1]}}),
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, [1, 2], [1, 2]),
        ([1], {"a": {"b": None}}, {"a": {}}),
        ("drop it", None, None),
    ],
)
def test_changes_are_a_json_merge_patch(plan, changes, becomes):
    """RFC 7396."""
    assert patched(plan, changes) == becomes


@pytest.mark.parametrize(
    ("changes", "becomes"),
    [({"b": 3}, [{"a": 1, "b": 3}, {"a": 2, "b": 3}]), ([{"a": 4}, {}], [{"a": 4}, {}])],
)
def test_changes_of_a_step_are_those_of_each_of_its_items(changes, becomes):
    step = ApprovalTarget("step", ID, "pay")
    assert changed([{"a": 1}, {"a": 2}], changes, step) == becomes


def test_a_plan_that_is_a_list_is_no_list_of_items():
    assert changed([1, 2], {"a": 1}, ApprovalTarget("episode", ID)) == {"a": 1}


def test_whoever_decides_at_the_same_time_learns_whose_decision_stands(journal, standing):
    journal.pretend_node()
    id_ = journal.block(approval())
    with standing.running("episodes", "approve", id_, "--yes", "--by", "ann") as program:
        journal.wait_command(id_)
        journal.write(journal.stack.episode(id_), *answer(Resolution.DENIED, by="bob"))
        said = program.wait_said("another decision stands: denied by bob at 20")
        program.process.wait(RUN_S_MAX)
    assert said.startswith(f"vigil: {id_}: ")
    assert program.process.returncode == 1


def at_a_terminal(vigil: Vigil, *words: str, typed: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run a command with somebody at the keyboard."""
    keyboard, screen = pty.openpty()
    try:
        os.write(keyboard, typed)
        return subprocess.run(
            [*vigil.command, *words],
            cwd=vigil.folder,
            env=vigil.environ,
            stdin=screen,
            capture_output=True,
            timeout=RUN_S_MAX,
            check=False,
        )
    finally:
        os.close(keyboard)
        os.close(screen)


@pytest.mark.parametrize(("typed", "code", "is_sent"), [(b"n\n", 1, False), (b"y\n", 0, True)])
def test_at_a_terminal_the_plan_is_shown_and_its_approval_confirmed(
    journal, standing, typed, code, is_sent
):
    id_ = journal.block(approval(approvers=("ann",)))
    words = ("episodes", "approve", id_, "--by", "ann", "--no-wait")
    done = at_a_terminal(standing, *words, typed=typed)
    shown = done.stderr.decode()

    assert done.returncode == code
    assert '"drop": "t1"' in shown
    assert PLAN_HASH in shown
    assert f"approve episode {id_}?" in shown
    assert journal.has_command(id_) is is_sent


def test_an_approved_plan_is_gone_on_with(connected):
    with serving(connected):
        id_ = blocked(connected, "shrink", '{"table": "t1"}')
        hash_ = connected.ask("episodes", "show", id_)["waits_for"]["plan_hash"]
        words = ("approve", id_, "--hash", hash_[:8], "--by", "ann", "--reason", "it is empty")
        done = decide(connected, *words)
        assert (done.stdout, done.stderr) == (f"{id_}: approved by ann\n", "")
        assert ended(connected, id_) == ("done", "approved by ann")


def test_the_episode_that_asked_last_is_decided_on_by_latest(connected):
    with serving(connected):
        line = one_line(decide(connected, "approve", "--latest", "--yes"), code=1)
        assert "no episode asks for approval" in line
        older = blocked(connected, "shrink", '{"table": "t1"}')
        newer = blocked(connected, "shrink", '{"table": "t2"}')
        line = one_line(decide(connected, "approve", "--latest", "--yes", "--by", "ann"), code=2)
        assert (
            "several episodes ask, and --yes shows no plan; give an id, or leave --yes out" in line
        )
        shown = decide(connected, "deny", "--latest", "--by", "ann")
        assert '"drop": "t2"' in shown.stderr
        hash_ = connected.ask("episodes", "show", newer)["waits_for"]["plan_hash"]
        done = decide(connected, "deny", "--latest", "--hash", hash_, "--by", "bob")
        assert done.stdout == f"{newer}: denied by bob\n"
        ended(connected, newer)
        done = decide(connected, "approve", "--latest", "--yes", "--by", "ann")
        assert done.stdout == f"{older}: approved by ann\n"


@pytest.mark.parametrize("verdict", [each.value for each in Verdict])
def test_a_decision_is_about_an_id_or_the_latest(standing, verdict):
    line = one_line(decide(standing, verdict, "--yes"), code=2)
    assert "which episode? give its id, or --latest" in line
    line = one_line(decide(standing, verdict, ID, "--latest", "--yes"), code=2)
    assert "give an id, or --latest, not both" in line


def test_a_denied_plan_is_told_to_the_strategy(connected):
    with serving(connected):
        id_ = blocked(connected, "shrink", '{"table": "t1"}')
        done = decide(connected, "deny", id_, "--yes", "--by", "bob", "--reason", "no")
        assert (done.stdout, done.stderr) == (f"{id_}: denied by bob\n", "")
        assert ended(connected, id_) == ("done", typed.DENIED.said)


def test_a_decision_made_while_no_node_is_up_is_ruled_on_when_one_is(connected):
    with serving(connected) as program:
        id_ = blocked(connected, "shrink", '{"table": "t1"}')
        assert program.stop(signal.SIGTERM) == 0
    done = decide(connected, "approve", id_, "--yes", "--by", "ann")
    assert done.stdout == f"{id_}: sent; a node decides on it\n"
    with serving(connected):
        assert ended(connected, id_) == ("done", "approved by ann")


def test_all_that_wait_for_one_reference_are_told_and_no_others(connected):
    with serving(connected):
        first, second, other = (
            fired(connected, "pay", f'{{"ref": "bill {n}"}}') for n in (7, 7, 8)
        )
        connected.wait_for("inbox", until=lambda rows: len(rows) == 3)
        done = decide(connected, "resolve", "bill 7", "--result", '{"paid": 7}')
        ends = {ended(connected, id_) for id_ in (first, second)}
        one = decide(connected, "resolve", "bill 8", "--episode", other, "--result", "8")
        late = decide(connected, "resolve", "bill 8")
        assert ended(connected, other) == ("done", "paid 8")

    assert done.stderr == ""
    assert set(done.stdout.splitlines()) == {f"{id_}: resolved" for id_ in (first, second)}
    assert ends == {("done", "paid {'paid': 7}")}
    assert one.stdout == f"{other}: resolved\n"
    line = one_line(late, code=1)
    assert line == (
        "vigil: no episode waits for 'bill 8'; for a future one, publish wait.resolved\n"
    )


def test_an_episode_that_was_answered_before_is_not_told_again(journal, standing):
    waiting, answered = (journal.block(wait=Wait(ref="bill 7")) for _ in range(2))
    journal.write(journal.stack.episode(answered), *answer(Resolution.RESOLVED, by="bob"))
    for id_ in (waiting, answered):
        journal.index(id_, "bill 7")
    assert (
        decide(standing, "resolve", "bill 7").stdout == f"{waiting}: sent; a node decides on it\n"
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("r", "--result", "{"), "--result: not JSON"),
        (("r", "--episode", "x"), "'x' is no episode id"),
        (("r", "--by", ""), "--by: give a name"),
    ],
)
def test_word_that_cannot_work_is_one_line_before_any_server_is_asked(vigil, words, why):
    assert why in one_line(vigil.run("episodes", "resolve", *words, **NOWHERE), code=2)


def test_word_of_nothing_is_refused(standing):
    assert "ref: 0 characters" in one_line(decide(standing, "resolve", ""), code=2)


def test_what_a_blocked_episode_waits_for_is_shown(connected):
    with serving(connected):
        id_ = blocked(connected, "shrink", '{"table": "t1"}')
        asked = connected.run("episodes", "show", id_).stdout
        paying = blocked(connected, "pay", '{"ref": "bill 7"}')
        waiting = connected.run("episodes", "show", paying).stdout
        listed = connected.ask("episodes", "list", "--status", "blocked")

    for words in ("approval", "drop a table", "ann, bob", f"vigil episodes approve {id_[:13]}"):
        assert words in asked
    assert '"drop": "t1"' in asked
    assert "vigil episodes resolve 'bill 7'" in waiting
    assert {row["episode_id"] for row in listed} == {id_, paying}
