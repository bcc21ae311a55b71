"""Instances of workflows that no node runs: who finds them, and what is said of them."""

from __future__ import annotations

import json
from signal import SIGTERM
from uuid import uuid4

import pytest
from msgspec.structs import replace

from engine.app.workflow_plan import starter_id
from projections.postgres.query_result import ROWS_MAX
from streams.json import NOTHING, raw
from streams.model.definitions import RegisteredDefinition
from streams.model.events import WorkflowStarted
from streams.model.events.definitions import DefinitionKind
from streams.model.modes import NodeMode
from streams.model.triggers import EventTrigger
from streams.model.workflows import WorkflowSpec
from tests.vigil.journal import Journal, said_by
from vigil.asking.instances import advice, by_workflow, served
from vigil.errors import EXIT_TROUBLE

LOOK = ("recover", "--dry-run")
IN_GOOD_HANDS = "nothing was forgotten"


def rows(workflow, *ids):
    return [
        {"instance_id": id_, "workflow_id": workflow, "latest_at": f"the hour of {id_}"}
        for id_ in ids
    ]


def disabled(id_, kind=DefinitionKind.WORKFLOW):
    return RegisteredDefinition(kind=kind, id=id_, revision=1, seq=1, body=NOTHING)


def applied(id_):
    return replace(disabled(id_), body=raw({"name": id_}))


def refusing(node, id_):
    return said_by(node, {f"workflow.{id_}": "there is no actor 'reviewer'"})


def without_running(node):
    """Return what `node` says once it is to run nothing."""
    idle = {actor: replace(info, runs=False) for actor, info in node.actors.items()}
    return replace(node, actors=idle)


def test_a_workflow_is_served_while_any_node_runs_it():
    nodes = [said_by("n1", {}, watch=0), said_by("n2", {}, **{starter_id("w"): 0})]
    assert served(nodes, []) == ["w"]


def test_a_workflow_is_not_served_by_a_node_that_has_it_and_runs_nothing():
    assert served([without_running(said_by("n1", {}, **{starter_id("w"): 0}))], []) == []


@pytest.mark.parametrize("kind", DefinitionKind)
def test_what_is_disabled_is_seen_to_by_every_node_if_it_is_a_workflow(kind):
    found = served([said_by("n1", {})], [disabled("w", kind)])
    assert found == (["w"] if kind is DefinitionKind.WORKFLOW else [])


def test_what_is_disabled_is_not_seen_to_by_a_node_that_cannot_or_that_runs_nothing():
    idle = replace(said_by("n2", {}), mode=NodeMode.TRIGGER_ONLY)
    assert served([refusing("n1", "w"), idle], [disabled("w")]) == []
    assert served([refusing("n1", "other"), idle], [disabled("w")]) == ["w"]


def test_what_is_defined_is_served_by_the_nodes_that_have_it_and_by_no_others():
    others = [refusing("n1", "w"), said_by("n2", {}, watch=0)]
    assert served(others, [applied("w")]) == []
    assert served([*others, said_by("n3", {}, **{starter_id("w"): 1})], [applied("w")]) == ["w"]


def test_instances_are_told_in_one_line_for_each_workflow():
    found = by_workflow([*rows("one", "a"), *rows("two", "b"), *rows("one", "c")])
    why = "no node that is up runs the workflow. Deploy it again"
    assert [advice(each).split(";")[0] for each in found] == [
        f"2 instances of 'one', the longest silent since the hour of a: {why}",
        f"1 instance of 'two', the longest silent since the hour of b: {why}",
    ]


@pytest.mark.parametrize(
    ("there", "says"), [(ROWS_MAX - 1, "9,999 "), (ROWS_MAX, "at least 10,000 ")]
)
def test_as_many_instances_as_one_answer_holds_may_be_more(there, says):
    (found,) = by_workflow(rows("one", *range(there)))
    assert advice(found).startswith(f"{says}instances of 'one'")


def test_who_looks_after_a_deploy_learns_which_instances_no_node_sees_to(connected, write_app):
    write_app()
    journal, ids = Journal(connected), {str(uuid4()), str(uuid4())}
    with connected.running("node", "--app", "watch:app"):
        connected.wait_for("workflows", "list", until=lambda rows: rows == [])
        assert IN_GOOD_HANDS in connected.run(*LOOK).stdout
        for id_ in ids:
            journal.write(journal.stack.workflow(id_), began(id_))
        said = connected.wait_for(*LOOK, until=lambda said: len(said["unserved"]) == 2)
        swept = connected.run(*LOOK)
        looked = json.loads(connected.run("doctor", "--json").stdout)["checks"]
        read = connected.run("doctor")
    assert {each["instance_id"] for each in said["unserved"]} == ids
    assert (swept.returncode, read.returncode) == (0, EXIT_TROUBLE)
    assert swept.stdout.count("2 instances of 'gone', the longest silent since") == 1
    assert IN_GOOD_HANDS not in swept.stdout
    (check,) = [each for each in looked if each["what"] == "instances of gone"]
    assert check["status"] == "problem"
    assert set(check["instances"]) == ids
    assert "vigil workflows cancel" in check["remedy"]
    assert not any(id_ in read.stdout for id_ in ids)


def test_while_no_node_is_up_nobody_can_say_what_they_run(connected, write_app):
    write_app()
    journal, id_ = Journal(connected), str(uuid4())
    with connected.running("node", "--app", "watch:app") as node:
        journal.write(journal.stack.workflow(id_), began(id_))
        connected.wait_for(*LOOK, until=lambda said: len(said["unserved"]) == 1)
        assert node.stop(SIGTERM) == 0
    assert connected.ask(*LOOK)["unserved"] == []


def began(id_):
    return WorkflowStarted(
        instance_id=id_,
        spec=WorkflowSpec(name="gone", steps=()),
        trigger=EventTrigger(event_id="e1", event_type="host.seen", payload={}),
        dedupe_key=id_,
    )
