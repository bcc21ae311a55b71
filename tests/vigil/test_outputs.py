"""What an operator does about outputs, and what they are told, on real servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from streams.model.events import (
    OutputAttempted,
    OutputCanceled,
    OutputFailed,
    OutputPostponed,
    OutputRejected,
    OutputRetried,
)
from tests.vigil.journal import KEPT, PLAN_HASH, Journal, approval, proposed
from tests.vigil.program import NOWHERE, Vigil
from tests.vigil.test_command_line import one_line

APP = '''
"""One actor that pages, by a pager that is broken while there is a file `broken`."""

from pathlib import Path

from vigil import Actor, App, ConvergeResult, DeliveryFailed, Strategy, converge, event
from vigil import propose_output


class Page(Strategy):
    def init(self, episode, trigger):
        return trigger.payload

    def next_step(self, state, ctx):
        return converge()

    def converge(self, state, ctx):
        wanted = {"summary": "page ann", "approvers": ("ann",)} if state.get("ask") else {}
        output = propose_output(
            "pager", {"text": state["text"]}, dedupe_key=state["text"],
            requires_approval=bool(wanted), **wanted,
        )
        return ConvergeResult(summary="paged", outputs=[output])


async def pager(output):
    if Path("broken").exists():
        raise DeliveryFailed("broken", "it is", permanent=True)
    return f"page {output.attempt}"


dba = Actor("dba")
dba.expect("shrink", Page, on=event("disk.full"))
app = App(actors=[dba], outputs={"pager": pager})
'''


UNHEARD = f"no node that is up runs actor 'dba' (none is up at all); {KEPT}"


@pytest.fixture
def journal(standing: Vigil) -> Journal:
    """The log of a stack that no node works in."""
    return Journal(standing)


@contextmanager
def serving(vigil: Vigil) -> Iterator[None]:
    """A node and its rows are up meanwhile."""
    (vigil.folder / "watch.py").write_text(APP)
    with vigil.running("node", "--app", "watch:app") as program:
        program.wait_said("node up")
        vigil.wait_for("episodes", "list", until=lambda _: True)
        yield


def paged(vigil: Vigil, text: str, **payload: object) -> str:
    """Have an episode page; return its id."""
    said = json.dumps({"text": text, **payload})
    return vigil.run("fire", "dba", "shrink", "--payload", said).stdout.strip()


def wait_status(vigil: Vigil, key: str, status: str) -> dict[str, object]:
    return vigil.wait_for("outputs", "show", key, until=lambda row: row["status"] == status)


def failed(journal: Journal, key: str) -> None:
    """Have an output fail for good."""
    journal.write(
        journal.stack.output(key),
        proposed(key),
        OutputAttempted(attempt=1),
        OutputFailed(attempt=1, error_class="away"),
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("approve", "k", "--hash", "12"), "--hash: '12' is not 8 to 64 hex digits"),
        (("reject", "k", "--by", ""), "--by: give a name"),
        (("retry",), "name the outputs, or give --all"),
        (("retry", "k", "--all"), "name the outputs, or give --all"),
        (("retry", "k", "--actor", "dba"), "--actor, --adapter and --yes go with --all"),
        (("retry", "k", "--yes"), "--actor, --adapter and --yes go with --all"),
    ],
)
def test_words_that_cannot_work_are_one_line_before_any_server_is_asked(vigil, words, why):
    assert why in one_line(vigil.run("outputs", *words, **NOWHERE), code=2)


@pytest.mark.parametrize("words", [("approve", "k", "--yes"), ("reject", "k", "--yes")])
def test_an_output_that_nobody_knows_is_one_line_with_a_hint(standing, words):
    line = one_line(standing.run("outputs", *words), code=1)
    assert "no output 'k' in stack" in line
    assert "`vigil outputs list` shows" in line


def test_an_output_that_needs_no_approval_asks_nobody(journal, standing):
    journal.write(journal.stack.output("k"), proposed("k"))
    line = one_line(standing.run("outputs", "approve", "k", "--yes"), code=1)
    assert line == "vigil: output 'k' does not ask for approval\n"


def test_a_second_decision_is_told_of_the_first(journal, standing):
    rejected = OutputRejected(by="bob", reason="not now", decision_id="theirs")
    journal.write(journal.stack.output("k"), proposed("k", approval=approval()), rejected)
    line = one_line(standing.run("outputs", "approve", "k", "--yes"), code=1)
    assert "output 'k' does not wait any more: rejected by bob at 20" in line


def test_a_decision_that_no_node_can_rule_on_now_waits_for_one(journal, standing):
    asked = proposed("k", approval=approval())
    journal.write(journal.stack.output("k"), asked)
    done = standing.run("outputs", "reject", "k", "--hash", PLAN_HASH)
    assert (done.returncode, done.stdout) == (1, "k: sent; a node decides on it\n")
    assert done.stderr == f"vigil: {UNHEARD}\n"
    assert journal.has_command(asked.episode_id)


def test_whoever_decides_at_the_same_time_learns_whose_decision_stands(journal, standing):
    asked = proposed("k", approval=approval())
    journal.pretend_node()
    journal.write(journal.stack.output("k"), asked)
    with standing.running("outputs", "approve", "k", "--yes") as program:
        journal.wait_command(asked.episode_id)
        journal.write(journal.stack.output("k"), OutputRejected(by="bob", decision_id="theirs"))
        program.wait_said("vigil: k: another decision stands: rejected by bob at 20")


def test_each_output_that_is_tried_again_says_what_came_of_it(journal, standing):
    failed(journal, "k1")
    journal.write(journal.stack.output("k2"), proposed("k2"))
    done = standing.run("outputs", "retry", "k1", "k2", "k3")
    obstacle, *refused = done.stderr.splitlines()

    assert (done.returncode, done.stdout) == (1, "k1: sent; a node decides on it\n")
    assert obstacle == f"vigil: {UNHEARD}"
    assert [line.split(": ")[1] for line in refused] == ["k2", "k3"]


def test_a_retry_is_waited_for_no_longer_than_one_likes(journal, standing):
    journal.pretend_node()
    failed(journal, "k1")
    line = one_line(standing.run("outputs", "retry", "k1", "--timeout", "0"), code=1)
    assert line == "vigil: k1: not on the journal in time; a node may still decide on it\n"


def test_whoever_tries_again_at_the_same_time_learns_who_was_faster(journal, standing):
    journal.pretend_node()
    failed(journal, "k1")
    with standing.running("outputs", "retry", "k1") as program:
        journal.wait_command(proposed("k1").episode_id)
        journal.write(journal.stack.output("k1"), OutputRetried(by="bob", retry_id="theirs"))
        program.wait_said("vigil: k1: bob has it tried again")


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (OutputCanceled(by="bob", cancel_id="theirs"), "bob was faster"),
        (OutputCanceled(reason="by bob"), "who canceled its episode was faster"),
        (OutputRejected(by="bob"), "it was rejected before"),
        (OutputFailed(attempt=0, error_class="gone"), "it has failed before: gone"),
    ],
)
def test_whoever_cancels_an_output_too_late_learns_what_came_before(
    journal, standing, happens, says
):
    journal.pretend_node()
    journal.write(journal.stack.output("k1"), proposed("k1", approval=approval()))
    with standing.running("outputs", "cancel", "k1") as program:
        journal.wait_command(proposed("k1").episode_id)
        journal.write(journal.stack.output("k1"), happens)
        program.wait_said(f"vigil: k1: {says}")


def test_what_cannot_be_canceled_is_refused_and_all_else_is_asked_for(journal, standing):
    failed(journal, "k1")
    journal.write(journal.stack.output("k2"), proposed("k2"))
    done = standing.run("outputs", "cancel", "k1", "k2", "k3")
    assert (done.returncode, done.stdout) == (1, "k2: sent; a node decides on it\n")
    assert "k1: it is failed; only what is still to be delivered can be canceled" in done.stderr
    assert "k3: there is no such output" in done.stderr


def test_what_is_put_off_may_be_tried_now(journal, standing):
    later = datetime.now(UTC) + timedelta(hours=1)
    put_off = OutputPostponed(attempt=1, error_class="busy", retry_at=later)
    journal.pretend_node()
    journal.write(journal.stack.output("k1"), proposed("k1"), OutputAttempted(attempt=1), put_off)
    with standing.running("outputs", "retry", "k1") as program:
        journal.wait_command(proposed("k1").episode_id)
        journal.write(journal.stack.output("k1"), OutputRetried(by="bob", retry_id="theirs"))
        program.wait_said("vigil: k1: bob has it tried again")


def test_what_is_delivered_is_listed_and_shown_with_what_happened_to_it(connected):
    with serving(connected):
        id_ = paged(connected, "disk 1")
        shown = wait_status(connected, "disk 1", "delivered")
        (listed,) = connected.ask("outputs", "list", "--actor", "dba", "--adapter", "pager")
        nothing = connected.ask("outputs", "list", "--status", "failed")
        for_people = connected.run("outputs", "show", "disk 1").stdout
        episode = connected.wait_for("episodes", "show", id_, until=lambda row: row["outputs"])
        episode_for_people = connected.run("episodes", "show", id_).stdout

    assert shown["delivered_ref"] == "page 1"
    assert [each["kind"] for each in shown["history"]][-1] == "output_proposed"
    assert listed["output_key"] == "disk 1"
    assert nothing == []
    assert '"text": "disk 1"' in for_people
    assert " delivered " in for_people.partition("History")[2]
    assert [(each["output_key"], each["status"]) for each in episode["outputs"]] == [
        ("disk 1", "delivered")
    ]
    assert "disk 1" in episode_for_people


def test_an_output_is_delivered_once_it_is_approved(connected):
    with serving(connected):
        paged(connected, "disk 1", ask=True)
        hash_ = wait_status(connected, "disk 1", "awaiting_approval")["payload_hash"]
        eve = connected.run("outputs", "approve", "disk 1", "--hash", hash_[:8], "--by", "eve")
        ann = connected.run("outputs", "approve", "disk 1", "--hash", hash_[:8], "--by", "ann")
        wait_status(connected, "disk 1", "delivered")

    assert "'eve' is none of those who may decide: ann" in one_line(eve, code=1)
    assert (ann.stdout, ann.stderr) == ("disk 1: approved by ann\n", "")


def test_what_is_delivered_may_be_changed_by_who_approves_it(connected):
    with serving(connected):
        paged(connected, "disk 1", ask=True)
        before = wait_status(connected, "disk 1", "awaiting_approval")["payload"]
        words = ("--yes", "--by", "ann", "--changes", '{"note": "calm down"}')
        done = connected.run("outputs", "approve", "disk 1", *words)
        after = wait_status(connected, "disk 1", "delivered")["payload"]

    assert (done.returncode, after) == (0, {**before, "note": "calm down"}), done.stderr


def test_an_output_that_is_rejected_is_not_delivered(connected):
    with serving(connected):
        paged(connected, "disk 1", ask=True)
        wait_status(connected, "disk 1", "awaiting_approval")
        done = connected.run("outputs", "reject", "disk 1", "--yes", "--by", "ann")
        shown = wait_status(connected, "disk 1", "rejected")

    assert done.stdout == "disk 1: rejected by ann\n"
    assert shown["attempts"] == 0


def test_an_output_that_is_canceled_is_not_delivered_and_shows_who_did_it(connected):
    with serving(connected):
        paged(connected, "disk 1", ask=True)
        wait_status(connected, "disk 1", "awaiting_approval")
        done = connected.run("outputs", "cancel", "disk 1", "--by", "ann", "--reason", "too late")
        shown = wait_status(connected, "disk 1", "canceled")
        told = connected.run("outputs", "show", "disk 1").stdout

    assert done.stdout == "disk 1: canceled\n"
    assert shown["attempts"] == 0
    assert "ann" in told
    assert "too late" in told


def test_the_letter_of_an_output_is_requeued_by_trying_it_again(connected):
    (connected.folder / "broken").touch()
    with serving(connected):
        paged(connected, "disk 1")
        (letter,) = connected.wait_for("inbox", until=bool)
        shown = connected.ask("dead", "show", letter["id"])
        (connected.folder / "broken").unlink()
        done = connected.run("dead", "requeue", letter["id"])
        wait_status(connected, "disk 1", "delivered")
        connected.wait_for("inbox", until=lambda rows: not rows)

    assert (letter["kind"], letter["what_to_do"]) == (
        "dead_letter", "vigil outputs retry 'disk 1'",
    )  # fmt: skip
    assert (shown["output_key"], shown["what_to_do"]) == ("disk 1", letter["what_to_do"])
    assert done.stdout == f"{letter['id']}: requeued: its output is to be tried again\n"


def test_all_that_has_failed_is_tried_again_once_that_is_confirmed(connected):
    (connected.folder / "broken").touch()
    with serving(connected):
        for key in ("disk 1", "disk 2"):
            paged(connected, key)
            wait_status(connected, key, "failed")
        (connected.folder / "broken").unlink()
        asked = ("outputs", "retry", "--all", "--adapter", "pager")
        kept = connected.run(*asked)
        done = connected.run(*asked, "--actor", "dba", "--yes", "--reason", "mended")
        for key in ("disk 1", "disk 2"):
            wait_status(connected, key, "delivered")
        nothing = connected.run(*asked, "--yes")

    assert one_line(kept, code=2) == "vigil: there is no terminal to confirm on; give --yes\n"
    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == ["disk 1: tried again", "disk 2: tried again"]
    assert (nothing.returncode, nothing.stdout) == (0, "nothing to retry\n")
