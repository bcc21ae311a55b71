"""Instances of workflows on the journal, which have no tables."""

from __future__ import annotations

from projections.lives import project
from streams.log import Commit, Recorded
from streams.subjects import Stack
from tests.streams.workflow_samples import AT, WORKFLOW_EVENTS

STACK = Stack("s")


def test_an_instance_asks_for_no_rows_and_stops_nothing():
    events = WORKFLOW_EVENTS["workflow.started@1"]
    commit = Commit(id="c1", at=AT, events=events[:1])
    record = Recorded(subject=STACK.workflow("i1"), seq=1, commit=commit)
    assert project([record], stack=STACK) == []
