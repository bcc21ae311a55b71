"""What was disabled, or changed: how that is said, and what is refused meanwhile."""

from __future__ import annotations

import json

from tests.vigil.defining import LACKS, calmer, done
from tests.vigil.journal import Journal
from tests.vigil.test_command_line import one_line


def test_disabling_says_what_needs_it_and_what_becomes_of_what_comes(standing, files):
    done(standing, "apply", "disks.yaml", "review.yaml")
    off = standing.run("actors", "disable", "disk_watch", "--yes")
    flow = done(standing, "workflows", "disable", "review", "--yes")

    needs = "workflow review needs what goes (steps screen, pay), and begins no more without it"
    assert off.stderr == f"vigil: disk_watch: {needs}\n"
    assert off.stdout.splitlines() == [
        "disk_watch: disabled, at revision 1",
        "disk_watch: what comes waits, and fires when it is applied again",
    ]
    assert flow.startswith("review: disabled, at revision 1\n")


def test_disabling_waits_for_the_nodes_and_names_those_that_hold_on(standing, files):
    done(standing, "apply", "disks.yaml", "review.yaml")
    Journal(standing).pretend_node("n1", revisions={"disk_watch": 1, "workflow-review": 0})
    command = ("actors", "disable", "disk_watch", "--yes", "--timeout", "0.2")
    slow = standing.run(*command)
    told = standing.ask(*command)
    code = standing.ask("workflows", "disable", "review", "--yes", "--timeout", "0.2")

    assert "disk_watch: n1 has not said within 0.2 s that it lets go of it" in slow.stderr
    assert told == {
        "kind": "agent",
        "id": "disk_watch",
        "revision": 1,
        "changed": False,
        "needed_by": {"review": ["screen", "pay"]},
        "waking": ["n1"],
        "events": 0,
    }
    assert code["waking"] == []


def test_events_that_wait_for_what_was_disabled_are_counted_and_fire_later(standing, files):
    command = ("node", "--app", "parts:app", "--node-name", "n1")
    with standing.running(*command) as node:
        node.wait_said("node up")
        done(standing, "apply", "disks.yaml")
        first = done(standing, "actors", "disable", "disk_watch", "--yes")
        for host in ("a", "b"):
            done(standing, "publish", "resource.updated", f'{{"host": "{host}"}}')
        again = done(standing, "actors", "disable", "disk_watch", "--yes")
        done(standing, "apply", "disks.yaml")
        standing.wait_for("episodes", "list", until=len)  # The second one is cooled down.

    assert "disk_watch: what comes waits, and fires when it is applied again\n" in first
    assert (
        "disk_watch: 2 events wait; what comes waits, too, and fires when it is applied again"
        in again
    )


def test_what_is_disabled_is_not_woken_by_hand(standing, files):
    done(standing, "apply", "disks.yaml", "review.yaml")
    done(standing, "actors", "disable", "disk_watch", "--yes", "--by", "ada")
    done(standing, "workflows", "disable", "review", "--yes", "--by", "bob")
    fired = standing.run("fire", "disk_watch", "disk_has_room")
    started = standing.run("workflows", "start", "review")

    actor, flow = one_line(fired, code=1), one_line(started, code=1)
    assert actor.startswith("vigil: actor 'disk_watch' is disabled since 2")
    assert actor.endswith(" by ada; apply it again\n")
    assert flow.startswith("vigil: workflow 'review' is disabled since 2")
    assert flow.endswith(" by bob; apply it again\n")


def test_what_is_in_code_is_woken_though_a_definition_of_its_id_is_disabled(standing, files):
    done(standing, "apply", "disks.yaml")
    done(standing, "actors", "disable", "disk_watch", "--yes")
    Journal(standing).pretend_node("n1", revisions={"disk_watch": 0})

    done(standing, "fire", "disk_watch", "disk_has_room")


def test_a_mistyped_workflow_is_mentioned_as_one(standing, files):
    Journal(standing).pretend_node("n1", revisions={"workflow-review": 0, "reviewer": 0})

    unknown = one_line(standing.run("workflows", "start", "rewiev"), code=1)

    assert "nobody knows a workflow 'rewiev'; did you mean review?" in unknown


def test_an_actor_says_who_defined_and_disabled_it_and_where_to_see_it(standing, files):
    done(standing, "actors", "apply", "disks.yaml", "--by", "ada", "--reason", "new")
    held = standing.ask("actors", "show", "disk_watch")
    done(standing, "actors", "disable", "disk_watch", "--yes", "--by", "bob", "--reason", "old")
    off = standing.ask("actors", "show", "disk_watch")
    words = done(standing, "actors", "show", "disk_watch")
    done(standing, "actors", "apply", calmer(files), "--by", "cyd")
    again = standing.ask("actors", "show", "disk_watch")

    assert (held["applied_by"], held["applied_reason"], held["disabled_at"]) == ("ada", "new", None)
    assert (off["applied_by"], off["disabled_by"], off["disabled_reason"]) == ("ada", "bob", "old")
    assert (again["applied_by"], again["disabled_by"]) == ("cyd", None)
    assert off["definition"] == "vigil actors definition disk_watch"
    assert "revision 1, disabled" in words


def test_a_history_has_the_columns_of_its_table_and_says_what_was_disabled(standing, files):
    done(standing, "actors", "apply", "disks.yaml", "--by", "ada")
    done(standing, "actors", "disable", "disk_watch", "--yes", "--by", "bob")
    applied, disabled = standing.ask("actors", "history", "disk_watch")
    words = done(standing, "actors", "history", "disk_watch")

    assert list(applied) == [
        "kind", "definition_id", "journal_seq", "event_no", "change", "revision", "definition",
        "at", "person", "reason",
    ]  # fmt: skip
    assert (applied["kind"], applied["definition_id"]) == ("agent", "disk_watch")
    assert applied["definition"]["id"] == "disk_watch"
    assert (disabled["revision"], disabled["definition"]) == (1, None)
    assert "disabled" in words


def test_lists_show_sources_in_words_and_why_a_node_cannot_run_something(standing, files):
    done(standing, "apply", "disks.yaml", "review.yaml")
    journal = Journal(standing)
    journal.pretend_node("n1", revisions={"disk_watch": 1})
    journal.pretend_problem("n2", {"workflow.review": LACKS})
    actors = done(standing, "actors", "list")
    flows = done(standing, "workflows", "definitions")
    shown = done(standing, "actors", "show", "workflow-review")

    assert "revision 1" in actors
    assert "revision 1 (nobody runs it)" in flows
    assert f" n2: {LACKS}" in flows
    assert LACKS in shown


def test_a_doctor_names_definitions_that_nobody_runs(standing, files):
    def checks() -> dict[str, str]:
        told = json.loads(standing.run("doctor", "--json").stdout)
        return {each["what"]: each["says"] for each in told["checks"]}

    done(standing, "apply", "disks.yaml")
    Journal(standing).pretend_node("n1", revisions={}, disk_watch=LACKS)
    sick = checks()
    done(standing, "actors", "disable", "disk_watch", "--yes")

    assert sick["actor disk_watch"] == f"nobody runs revision 1: n1 cannot: {LACKS}"
    assert checks()["definitions"] == "none"
