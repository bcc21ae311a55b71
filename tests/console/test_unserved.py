"""Instances of workflows that no node has: who finds them, and what is said of them."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from console.unserved import told, unserved
from streams.definitions import Edition
from streams.events import WorkflowStarted
from streams.events.definitions import DefinitionKind
from streams.json import NOTHING
from streams.triggers import EventTrigger
from streams.workflows import WorkflowSpec
from tests.console.journal import Journal, said_by

INSTANCE = {"instance_id": "i1", "workflow_id": "w", "status": "running"}


def defined(id_, kind=DefinitionKind.WORKFLOW):
    return Edition(kind=kind, id=id_, revision=1, seq=1, body=NOTHING)


def test_an_instance_is_told_whose_workflow_no_node_has():
    others = said_by("n1", {}, watch=0)
    assert unserved([INSTANCE], [others], []) == [INSTANCE]
    assert told(INSTANCE).startswith("instance i1: no node that is up has the workflow 'w'. Deploy")


def test_an_instance_is_in_good_hands_whose_workflow_any_node_has():
    nodes = [said_by("n1", {}), said_by("n2", {}, **{"workflow-w": 0})]
    assert unserved([INSTANCE], nodes, []) == []


@pytest.mark.parametrize("kind", DefinitionKind)
def test_what_is_disabled_is_seen_to_by_every_node_if_it_is_a_workflow(kind):
    found = unserved([INSTANCE], [said_by("n1", {})], [defined("w", kind)])
    assert found == ([] if kind is DefinitionKind.WORKFLOW else [INSTANCE])


def test_while_no_node_is_up_nobody_can_say_what_they_have():
    assert unserved([INSTANCE], [], []) == []


def test_who_looks_after_a_deploy_learns_which_instances_no_node_sees_to(connected, write_app):
    write_app()
    journal, id_ = Journal(connected), str(uuid4())
    began = WorkflowStarted(
        instance_id=id_,
        spec=WorkflowSpec(name="gone", steps=()),
        trigger=EventTrigger(event_id="e1", event_type="host.seen", payload={}),
        dedupe_key="e1",
    )
    with connected.running("node", "--app", "watch:app"):
        journal.write(journal.stack.workflow(id_), began)
        connected.wait_for("workflows", "list", until=lambda rows: len(rows) == 1)
        assert [each["instance_id"] for each in connected.ask("recover", "--dry-run")["unserved"]]
        assert f"instance {id_}: no node" in connected.run("recover", "--dry-run").stdout
        looked = json.loads(connected.run("doctor", "--json").stdout)["checks"]
    (check,) = [each for each in looked if each["what"] == f"instance {id_}"]
    assert check["status"] == "problem"
    assert "'gone'" in check["says"]
    assert "vigil workflows cancel" in check["remedy"]
