"""What live nodes make of what is defined, and how that is said."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from streams.json import NOTHING, raw
from streams.model.definitions import RegisteredDefinition
from streams.model.events.definitions import DefinitionKind
from tests.vigil.journal import said_by
from vigil.asking.stack import origin, rollout_of, source_in_words

AGENT = DefinitionKind.AGENT
KEY = "agent.disk_watch"


def registered(revision, *, holds=True):
    body = raw({}) if holds else NOTHING
    return RegisteredDefinition(kind=AGENT, id="disk_watch", revision=revision, seq=7, body=body)


def at(name, revision):
    return said_by(name, {}, disk_watch=revision)


@pytest.mark.parametrize(
    ("nodes", "defined", "says"),
    [
        ([], None, None),
        ([at("n1", 0)], None, "code"),
        ([at("n1", 2)], registered(2), "revision 2"),
        ([], registered(2), "revision 2 (nobody runs it)"),
        ([at("n1", 1)], registered(2), "revision 2 (nobody runs it)"),
        ([], registered(2, holds=False), "revision 2, disabled"),
        ([at("n1", 2)], registered(2, holds=False), "revision 2, disabled"),
        ([at("n1", 0)], registered(2, holds=False), "code"),
        (
            [at("agents", 0), at("parts", 1), at("spare", 1)],
            registered(1),
            "code on agents, revision 1 on parts and spare",
        ),
        ([at("n1", 1), at("n2", 2)], registered(2), "revision 1 on n1, revision 2 on n2"),
    ],
)
def test_the_source_is_said_in_words(nodes, defined, says):
    revisions = [] if defined is None else [defined]
    assert source_in_words(origin(nodes, revisions, AGENT, "disk_watch")) == says


def test_programs_are_told_which_node_has_which_revision():
    row = origin([at("agents", 0), at("parts", 1)], [registered(1)], AGENT, "disk_watch")

    assert (row["source"], row["revision"]) == ("definition", 1)
    assert row["revisions"] == {"agents": 0, "parts": 1}


def test_a_node_that_says_which_revision_it_cannot_run_is_taken_at_its_word():
    node = said_by("n1", {KEY: "lacks"})
    old, new = replace(node, problems_at={KEY: 1}), replace(node, problems_at={KEY: 2})

    assert rollout_of([old], registered(2)).silent == ["n1"]
    assert rollout_of([new], registered(2), before={"n1": "lacks"}).failing == {"n1": "lacks"}
