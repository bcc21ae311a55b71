"""`vigil actors` and `vigil workflows`, as to what is defined in files."""

from __future__ import annotations

import pytest

from streams.model.definitions import RegisteredDefinition
from streams.model.events.definitions import DefinitionKind
from tests.vigil.defining import DISKS, HEALTHY, LACKS, REVIEW, calmer, done
from tests.vigil.journal import Journal, said_by
from tests.vigil.test_command_line import one_line
from vigil.asking.stack import rollout_of


def source_of(actor: str, rows: list[dict[str, object]]) -> object:
    return {row["actor_id"]: row["source"] for row in rows}.get(actor)


def test_what_is_applied_is_shown_with_its_difference_and_history(standing, files):
    dry = done(standing, "actors", "apply", "disks.yaml", "--dry-run")
    first = done(standing, "actors", "apply", "disks.yaml", "--by", "ada", "--reason", "new")
    again = done(standing, "actors", "apply", "disks.yaml")
    second = done(standing, "actors", "apply", calmer(files), "--by", "bob")
    off = done(standing, "actors", "disable", "disk_watch", "--yes", "--by", "cyd")
    off_again = done(standing, "actors", "disable", "disk_watch", "--yes")
    rows = standing.ask("actors", "history", "disk_watch", "--diff")
    words = done(standing, "actors", "history", "disk_watch", "--diff")

    assert dry.splitlines()[0] == "disk_watch: would be revision 1"
    assert first.splitlines() == [
        "disk_watch: revision 1",
        "  + expectations.disk_has_room.cooldown_s: 60",
        '  + expectations.disk_has_room.on.0.event: ["resource.updated"]',
        '  + expectations.disk_has_room.strategy.ref: "parts:Look"',
        '  + id: "disk_watch"',
        "disk_watch: no node is up; those that start run it",
    ]
    assert again.splitlines()[0] == "disk_watch: as it is already: revision 1"
    assert second.splitlines()[:2] == [
        "disk_watch: revision 2",
        "  ~ expectations.disk_has_room.cooldown_s: 60 → 120",
    ]
    assert off.splitlines()[0] == "disk_watch: disabled, at revision 2"
    assert off_again.splitlines()[0] == "disk_watch: was disabled already, at revision 2"
    assert [(row["revision"], row["change"], row["person"], row["reason"]) for row in rows] == [
        (1, "applied", "ada", "new"),
        (2, "applied", "bob", None),
        (2, "disabled", "cyd", None),
    ]
    assert rows[1]["difference"] == ["~ expectations.disk_has_room.cooldown_s: 60 → 120"]
    assert "\n  ~ expectations.disk_has_room.cooldown_s: 60 → 120\n2  disabled  cyd" in words


def test_a_dry_run_changes_nothing(standing, files):
    (planned,) = standing.ask("actors", "apply", "disks.yaml", "--dry-run")

    assert (planned["id"], planned["revision"], planned["changed"]) == ("disk_watch", 1, True)
    unknown = standing.run("actors", "history", "disk_watch")
    assert "nobody has defined actor 'disk_watch'; none is known" in one_line(unknown, code=1)


def test_what_is_printed_can_be_applied_again(standing, files):
    done(standing, "actors", "apply", "disks.yaml")
    done(standing, "actors", "apply", calmer(files))
    yaml = done(standing, "actors", "definition", "disk_watch", "--revision", "1")
    json_ = done(standing, "actors", "definition", "disk_watch", "--format", "json")
    (files / "printed.json").write_text(json_)
    same = done(standing, "actors", "apply", "printed.json")
    back = done(standing, "actors", "apply", "-", "--format", "yaml", stdin=yaml.encode())
    none = standing.run("actors", "definition", "disk_watch", "--revision", "9")

    assert yaml.splitlines()[0] == "id: disk_watch"
    assert same.startswith("disk_watch: as it is already: revision 2\n")
    assert back.splitlines()[:2] == [
        "disk_watch: revision 3",
        "  ~ expectations.disk_has_room.cooldown_s: 120 → 60",
    ]
    assert "has no revision 9; the last is 3" in one_line(none, code=1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id: [", "bad.yaml: not YAML: line 1:"),
        ("id: x\nexpectations: {}", "bad.yaml: expectations: write at least one, not {}"),
        ("id: x", "bad.yaml: write expectations for an actor, or steps for a workflow"),
        (REVIEW, "bad.yaml: not for actors; say `vigil workflows apply bad.yaml`"),
    ],
)
def test_nothing_is_applied_if_one_file_cannot_work(standing, files, text, why):
    (files / "bad.yaml").write_text(text)

    refused = standing.run("actors", "apply", "disks.yaml", "bad.yaml")

    assert why in one_line(refused, code=2)
    assert standing.run("actors", "history", "disk_watch").returncode == 1


def test_a_file_must_be_there_be_of_a_known_format_and_define_something_else(vigil, files):
    (files / "notes.txt").write_text(DISKS)
    (files / "same.yaml").write_text(DISKS)
    (files / "other.yaml").write_text(DISKS.replace("disk_watch", "other_watch"))

    def complaint(*arguments: str, code: int) -> str:
        return one_line(vigil.run(*arguments), code=code)

    assert "no.yaml: No such file" in complaint("actors", "apply", "no.yaml", code=1)
    assert "of no known format" in complaint("actors", "apply", "notes.txt", code=2)
    assert "say --format" in complaint("actors", "apply", "-", code=2)
    assert "say `vigil actors apply disks.yaml`" in complaint(
        "workflows", "apply", "disks.yaml", code=2
    )
    assert "both define actor 'disk_watch'" in complaint(
        "actors", "apply", "disks.yaml", "same.yaml", code=2
    )
    assert "if_revision: it is about one definition, and these are several" in complaint(
        "actors", "apply", "disks.yaml", "other.yaml", "--if-revision", "1", code=2
    )


def test_nothing_is_applied_if_one_is_too_long_as_json(standing, files):
    quotes = '"' * 200_000  # JSON needs two characters for each.
    config = f"template: t, config: {{x: '{quotes}'}}"
    long = DISKS.replace("disk_watch", "long").replace("ref: parts:Look", config)
    (files / "long.yaml").write_text(long)

    refused = standing.run("actors", "apply", "disks.yaml", "long.yaml")

    assert "bytes as JSON, the limit is 262,144" in one_line(refused, code=2)
    assert standing.run("actors", "history", "disk_watch").returncode == 1


def test_an_app_must_have_what_a_file_names(standing, files):
    poor = standing.run("actors", "apply", "disks.yaml", "--app", "parts:poor")
    good = standing.run("actors", "apply", "disks.yaml", "--app", "parts:app", "--dry-run")
    (files / "clerk.yaml").write_text(DISKS.replace("disk_watch", "clerk"))
    taken = standing.run("actors", "apply", "clerk.yaml", "--app", "parts:app")
    early = standing.run("workflows", "apply", "review.yaml", "--app", "parts:app")
    done(standing, "actors", "apply", "disks.yaml")
    late = standing.run("workflows", "apply", "review.yaml", "--app", "parts:app", "--dry-run")

    assert "disks.yaml: expectations.disk_has_room.strategy.ref: " in one_line(poor, code=2)
    assert good.returncode == 0, good.stderr
    assert "clerk.yaml: the app of this node declares it in code" in one_line(taken, code=2)
    assert "review.yaml: workflow 'review', step 'screen': actor: 'disk_watch'" in one_line(
        early, code=2
    )
    assert late.returncode == 0, late.stderr


def test_what_others_have_changed_meanwhile_stands(standing, files):
    done(standing, "actors", "apply", "disks.yaml", "--if-revision", "0")

    stale = standing.run("actors", "apply", calmer(files), "--if-revision", "0")
    planned = standing.run("actors", "apply", calmer(files), "--if-revision", "0", "--dry-run")
    off = standing.run("actors", "disable", "disk_watch", "--yes", "--if-revision", "7")

    for each in (stale, planned):
        assert "disk_watch: it is at revision 1 by now, not 0" in one_line(each, code=1)
    assert "disk_watch: it is at revision 1 by now, not 7" in one_line(off, code=1)
    assert len(standing.ask("actors", "history", "disk_watch")) == 1


def test_without_a_terminal_disabling_needs_a_yes(standing, files):
    done(standing, "actors", "apply", "disks.yaml")

    unasked = standing.run("actors", "disable", "disk_watch")
    unknown = standing.run("actors", "disable", "disk_wach", "--yes")

    assert "there is no terminal to confirm on; give --yes" in one_line(unasked, code=2)
    assert "nobody has defined actor 'disk_wach'; did you mean disk_watch?" in one_line(
        unknown, code=1
    )


def test_nodes_say_whether_they_run_what_was_applied(standing, files):
    journal = Journal(standing)
    journal.pretend_node("n1", revisions={"disk_watch": 1})
    runs = done(standing, "actors", "apply", "disks.yaml")
    journal.pretend_node("n2", revisions={}, disk_watch=LACKS)
    some = standing.run("actors", "apply", "disks.yaml")
    (told,) = standing.ask("actors", "apply", "disks.yaml")
    journal.pretend_node("n2", revisions={})
    silent = standing.run("actors", "apply", "disks.yaml", "--timeout", "0.2")

    assert runs.endswith("disk_watch: runs on n1\n")
    assert some.stdout.endswith("disk_watch: runs on n1\n")
    others = "others cannot: n2; `vigil actors show disk_watch` says why"
    assert one_line(some, code=0) == f"vigil: disk_watch: {others}\n"
    assert (told["running"], told["failing"], told["silent"]) == (["n1"], {"n2": LACKS}, [])
    assert "n2 has not said within 0.2 s that it runs revision 1" in one_line(silent, code=0)


def test_applying_is_in_vain_where_no_node_runs_it(standing, files):
    Journal(standing).pretend_node("n1", revisions={}, disk_watch=LACKS)

    waited = standing.run("actors", "apply", "disks.yaml", "--timeout", "0.5")
    unasked = standing.run("actors", "apply", "disks.yaml", "--timeout", "0")

    assert one_line(waited, code=1) == f"vigil: disk_watch: n1 cannot run it: {LACKS}\n"
    assert unasked.stdout == "disk_watch: as it is already: revision 1\nnot waited for nodes\n"
    assert unasked.returncode == 0


def test_what_a_node_said_of_an_earlier_revision_does_not_count_until_time_is_up():
    registered = RegisteredDefinition(kind=DefinitionKind.AGENT, id="disk_watch", revision=2, seq=7)
    node = said_by("n1", {"agent.disk_watch": LACKS})

    assert rollout_of([node], registered, before={"n1": LACKS}).silent == ["n1"]
    assert rollout_of([node], registered, before={"n1": "lacks more"}).failing == {"n1": LACKS}
    assert rollout_of([node], registered).failing == {"n1": LACKS}


def test_a_node_that_runs_a_later_revision_has_received_this_one():
    registered = RegisteredDefinition(kind=DefinitionKind.AGENT, id="disk_watch", revision=2, seq=7)
    nodes = [said_by(f"n{revision}", {}, disk_watch=revision) for revision in (0, 1, 2, 3)]

    found = rollout_of(nodes, registered)

    assert (found.running, found.silent) == (["n2", "n3"], ["n0", "n1"])


def test_actors_say_where_they_come_from(standing, files):
    journal = Journal(standing)
    journal.pretend_node("n1", disk_watch=LACKS)
    done(standing, "actors", "apply", "disks.yaml", "--timeout", "0")
    (files / "old.yaml").write_text(DISKS.replace("disk_watch", "old_watch"))
    done(standing, "actors", "apply", "old.yaml", "--timeout", "0")
    done(standing, "actors", "disable", "old_watch", "--yes")

    rows = {row["actor_id"]: row for row in standing.ask("actors", "list")}
    shown = standing.ask("actors", "show", "old_watch")

    assert {id_: (row["source"], row["revision"]) for id_, row in rows.items()} == {
        "dba": ("code", None),
        "disk_watch": ("definition", 1),
        "old_watch": ("disabled", 1),
    }
    assert rows["disk_watch"]["problems"] == {"n1": LACKS}
    assert (shown["source"], shown["expectations"]) == ("disabled", [])


def test_what_is_in_code_is_not_to_be_found_among_definitions(standing, files):
    Journal(standing).pretend_node("n1")

    for command in (("definition", "dba"), ("disable", "dba", "--yes"), ("history", "dba")):
        said = one_line(standing.run("actors", *command), code=1)
        assert said == "vigil: actor 'dba' is not defined as data: it is in the code of n1\n"


GONE = "disk_watch: gone: disk_is_healthy; what is left of it stays until vigil reconcile "
LATER = (
    "vigil: disk_watch: no node runs it, so nothing of it is ended; "
    "later: vigil reconcile --actor disk_watch\n"
)


def test_what_a_new_revision_has_no_more_is_told_with_what_to_do_about_it(standing, files):
    done(standing, "actors", "apply", "two.yaml")
    planned = done(standing, "actors", "apply", "disks.yaml", "--dry-run")
    (told,) = standing.ask("actors", "apply", "disks.yaml", "--dry-run")
    said = done(standing, "actors", "apply", "disks.yaml")
    again = done(standing, "actors", "apply", "disks.yaml")

    assert planned.splitlines()[-1] == said.splitlines()[-1] == f"{GONE}--actor disk_watch"
    assert told["gone"] == ["disk_is_healthy"]
    assert "gone" not in again


def test_a_schedule_that_is_gone_is_told_also_of_what_was_disabled_meanwhile(standing, files):
    (files / "calm.yaml").write_text(DISKS + HEALTHY.replace(", {every: 30d}", ""))
    (files / "daily.yaml").write_text(f"{REVIEW}\n".replace("on: {event", "on: {every: 1d} #"))
    done(standing, "actors", "apply", "two.yaml")
    done(standing, "actors", "disable", "disk_watch", "--yes")
    done(standing, "workflows", "apply", "daily.yaml")
    said = done(standing, "actors", "apply", "calm.yaml")
    flow = done(standing, "workflows", "apply", "review.yaml")

    assert "\ndisk_watch: gone: disk_is_healthy every 2592000s; what is left" in said
    assert "\nreview: gone: start every 86400s; what is left" in flow
    assert flow.endswith(" --actor workflow-review\n")


def test_reconciling_needs_nodes_and_a_change(standing, files):
    dry = standing.run("actors", "apply", "disks.yaml", "--reconcile", "--dry-run")
    hasty = standing.run("actors", "apply", "disks.yaml", "--reconcile", "--timeout", "0")
    wordy = standing.run("actors", "apply", "disks.yaml", "--reconcile", "--reason", "x" * 4_000)
    assert standing.run("actors", "history", "disk_watch").returncode == 1
    alone = standing.run("actors", "apply", "disks.yaml", "--reconcile")
    (told,) = standing.ask("actors", "apply", "disks.yaml", "--reconcile")

    assert "choose one of them" in one_line(dry, code=2)
    assert "give them time with --timeout" in one_line(hasty, code=2)
    assert "reason" in one_line(wordy, code=2)
    assert one_line(alone, code=0) == LATER
    assert told["reconciled"] is None


def test_only_what_a_node_runs_is_reconciled(standing, files):
    (files / "other.yaml").write_text(DISKS.replace("disk_watch", "other_watch"))
    Journal(standing).pretend_node("n1", revisions={"other_watch": 1}, disk_watch=LACKS)

    ran = standing.run(
        "actors", "apply", "disks.yaml", "other.yaml", "--reconcile", "--timeout", "1"
    )

    assert ran.returncode == 1
    first, second, third = ran.stderr.splitlines()
    assert first == f"vigil: disk_watch: n1 cannot run it: {LACKS}"
    assert second == LATER.rstrip()
    assert third.startswith("vigil: other_watch: node n1 does not say what it expects")


def test_what_is_left_of_an_older_revision_is_ended_once_the_nodes_have_the_new_one(
    standing, files
):
    with standing.running("node", "--app", "parts:app", "--node-name", "n1") as node:
        node.wait_said("node up")
        done(standing, "actors", "apply", "two.yaml")
        done(standing, "fire", "disk_watch", "disk_is_healthy")
        standing.wait_for("episodes", "list", "--status", "blocked", until=len)
        told = done(standing, "actors", "apply", "disks.yaml")
        done(standing, "actors", "apply", "two.yaml")
        ended = done(standing, "actors", "apply", "disks.yaml", "--reconcile", "--by", "ada")
        (row,) = standing.wait_for("episodes", "list", "--status", "canceled", until=len)
        shown = standing.ask("episodes", "show", row["episode_id"])
        (again,) = standing.ask("actors", "apply", "disks.yaml", "--reconcile")

    assert told.splitlines()[-1] == f"{GONE}--actor disk_watch"
    assert GONE not in ended
    assert ended.splitlines()[-1] == "disarm 1, arm 0, cancel 1, forget 0, unwatch 1"
    assert shown["error_detail"] == "by ada: orphan_cleanup"
    assert again["reconciled"]["actors"] == ["disk_watch"]
    assert again["reconciled"]["actions"] == []


def test_workflows_are_defined_in_the_same_way(standing, files):
    Journal(standing).pretend_node("n1", revisions={"workflow-review": 1, "workflow-coded": 0})
    first = done(standing, "workflows", "apply", "review.yaml", "--by", "ada")
    printed = done(standing, "workflows", "definition", "review")
    same = done(standing, "workflows", "apply", "-", "--format", "yaml", stdin=printed.encode())
    rows = {row["workflow_id"]: row for row in standing.ask("workflows", "definitions")}
    table = done(standing, "workflows", "definitions")
    done(standing, "workflows", "disable", "review", "--yes")
    (change, off) = standing.ask("workflows", "history", "review")

    assert first.splitlines()[0] == "review: revision 1"
    assert first.endswith("review: runs on n1\n")
    assert same.startswith("review: as it is already: revision 1\n")
    assert {name: (row["source"], row["revision"]) for name, row in rows.items()} == {
        "coded": ("code", None),
        "review": ("definition", 1),
    }
    review = rows["review"]
    assert (review["triggers"], review["steps"]) == (["event client.changed"], ["screen", "pay"])
    assert review["nodes"] == ["n1"]
    assert "screen, pay" in table
    assert (change["person"], off["change"]) == ("ada", "disabled")


def test_a_node_that_is_up_runs_what_is_applied_and_lets_go_of_what_is_disabled(standing, files):
    command = ("node", "--app", "parts:app", "--node-name", "n1", "--no-project")
    with standing.running(*command) as node:
        node.wait_said("node up")
        first = done(standing, "actors", "apply", "disks.yaml")
        second = done(standing, "actors", "apply", calmer(files))
        review = done(standing, "workflows", "apply", "review.yaml")
        (files / "bare.yaml").write_text(DISKS.replace("parts:Look", "parts:Lok"))
        bad = standing.run("actors", "apply", "bare.yaml")
        done(standing, "workflows", "disable", "review", "--yes")
        done(standing, "actors", "disable", "disk_watch", "--yes")
        standing.wait_for(
            "actors", "list", until=lambda rows: source_of("disk_watch", rows) == "disabled"
        )

    assert first.endswith("disk_watch: runs on n1\n")
    assert second.endswith("disk_watch: runs on n1\n")
    assert review.endswith("review: runs on n1\n")
    assert bad.returncode == 1
    lacks, back = bad.stderr.splitlines()
    assert "disk_watch: n1 cannot run it: expectations.disk_has_room.strategy.ref:" in lacks
    assert back == (
        "vigil: disk_watch: nobody runs it now; until revision 3 it ran on n1; go back with: vigil"
        " actors definition disk_watch --revision 2 | vigil actors apply - --format yaml"
    )
