"""Released bytes decode for ever, and what cannot be read is reported, never guessed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from streams.errors import UnreadableEvent, Unwritable
from streams.json import UNDECODABLE
from streams.model.commands import Command, WorkflowCommand
from streams.model.events import LogEvent
from streams.model.triggers import Budget
from streams.ports.log import Commit
from streams.wire.codec import (
    decode_command,
    decode_commit,
    decode_workflow_command,
    encode_command,
    encode_commit,
)
from tests.streams.samples import AT, COMMANDS, EVENTS
from tests.streams.workflow_samples import WORKFLOW_COMMANDS

GOLDEN = Path(__file__).parent / "golden"


def golden(tag: str) -> bytes:
    return (GOLDEN / f"{tag}.json").read_bytes()


def tags_of(union) -> set[str]:
    return {each.__struct_config__.tag for each in get_args(union)}


def decoded(data: bytes, **options):
    return decode_commit(data, subject="s.episode.e1", seq=7, commit_id="c1", **options)


def body(*events) -> bytes:
    return msgspec.json.encode({"at": AT, "events": events})


@pytest.mark.parametrize("tag", EVENTS)
def test_an_event_comes_back_as_it_was(tag):
    commit = Commit(id="c1", at=AT, events=EVENTS[tag], trace="00-aa-bb-01")
    recorded = decoded(encode_commit(commit), trace="00-aa-bb-01")
    assert recorded.commit == commit
    assert (recorded.subject, recorded.seq) == ("s.episode.e1", 7)


@pytest.mark.parametrize("tag", EVENTS)
def test_released_events_mean_what_they_meant(tag):
    commit = decoded(golden(tag)).commit
    assert (commit.at, commit.events) == (AT, EVENTS[tag])


@pytest.mark.parametrize("tag", COMMANDS)
def test_released_commands_mean_what_they_meant(tag):
    assert decode_command(golden(tag)) == COMMANDS[tag]


@pytest.mark.parametrize("tag", COMMANDS)
def test_a_command_comes_back_as_it_was(tag):
    assert decode_command(encode_command(COMMANDS[tag])) == COMMANDS[tag]


@pytest.mark.parametrize("tag", WORKFLOW_COMMANDS)
def test_released_commands_to_instances_mean_what_they_meant(tag):
    assert decode_workflow_command(golden(tag)) == WORKFLOW_COMMANDS[tag]


@pytest.mark.parametrize("tag", WORKFLOW_COMMANDS)
def test_a_command_to_an_instance_is_none_to_an_episode(tag):
    data = encode_command(WORKFLOW_COMMANDS[tag])
    assert decode_workflow_command(data) == WORKFLOW_COMMANDS[tag]
    with pytest.raises(UNDECODABLE):
        decode_command(data)


def test_every_tag_has_a_sample_and_released_bytes():
    assert tags_of(LogEvent) == set(EVENTS)
    assert tags_of(Command) == set(COMMANDS)
    assert tags_of(WorkflowCommand) == set(WORKFLOW_COMMANDS)
    known = {*EVENTS, *COMMANDS, *WORKFLOW_COMMANDS}
    assert {path.stem for path in GOLDEN.glob("*.json")} == known


def test_a_commit_may_hold_events_of_every_kind_in_order():
    commit = Commit(id="c1", at=AT, events=tuple(e for all_ in EVENTS.values() for e in all_))
    assert decoded(encode_commit(commit)).commit == commit


def test_a_field_of_a_newer_version_is_ignored():
    newer = {"type": "episode.started@1", "node": "n", "attempt": 1, "claim_revision": 2, "new": 3}
    (event,) = decoded(body(newer)).commit.events
    assert (event.node, event.attempt, event.claim_revision) == ("n", 1, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"what?",
        b"[]",
        b'{"at":"2030-01-01T00:00:00Z"}',
        b'{"events":[]}',
        b'{"at":"yesterday","events":[]}',
        b'{"at":"2030-01-01T00:00:00Z","events":[{}]}',
        b'{"at":"2030-01-01T00:00:00Z","events":[{"type":7}]}',
        b'{"at":"2030-01-01T00:00:00Z","events":[{"type":"episode.never@1"}]}',
        b'{"at":"2030-01-01T00:00:00Z","events":[{"type":"episode.started@1"}]}',
        b'{"at":"2030-01-01T00:00:00Z","events":[{"type":"\xff"}]}',
        b'{"at":' + b"[" * 20_000,
    ],
)
def test_bytes_that_are_no_events_are_reported_with_their_place(data):
    with pytest.raises(UnreadableEvent) as unreadable:
        decoded(data)
    assert (unreadable.value.subject, unreadable.value.seq) == ("s.episode.e1", 7)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"type":"never@1"}', b'{"type":"\xff"}', b"[" * 20_000]
)
def test_bytes_that_are_no_command_are_refused(data):
    with pytest.raises(UNDECODABLE):
        decode_command(data)


def begun_to_begun_2(event):
    return {**event, "type": "episode.begun@2", "attempt": 1}


def begun_2_to_started(event):
    return {
        "type": "episode.started@1",
        "node": event["host"],
        "attempt": event["attempt"],
        "claim_revision": 0,
    }


CHAIN = {"episode.begun@1": begun_to_begun_2, "episode.begun@2": begun_2_to_started}


def test_a_retired_event_is_read_as_what_it_became():
    retired = {"type": "episode.begun@1", "host": "n1"}
    (event,) = decoded(body(retired), upcasts=CHAIN).commit.events
    assert (event.node, event.attempt) == ("n1", 1)


def test_a_retired_event_does_not_change_its_neighbours():
    neighbours = [event for events in EVENTS.values() for event in events]
    retired = {"type": "episode.begun@2", "host": "n1", "attempt": 4}
    first, *rest = decoded(body(retired, *neighbours), upcasts=CHAIN).commit.events
    assert first.attempt == 4
    assert rest == neighbours


def test_a_chain_that_ends_at_an_unknown_tag_is_unreadable():
    with pytest.raises(UnreadableEvent, match=r"episode\.begun@2"):
        decoded(
            body({"type": "episode.begun@1", "host": "n1"}),
            upcasts={"episode.begun@1": begun_to_begun_2},
        )


def test_upcasts_that_lead_in_a_circle_are_noticed():
    circle = {
        "a@1": lambda event: {**event, "type": "b@1"},
        "b@1": lambda event: {**event, "type": "a@1"},
    }
    with pytest.raises(UnreadableEvent, match="circle"):
        decoded(body({"type": "a@1"}), upcasts=circle)


@pytest.mark.parametrize(
    "values",
    [
        {"spec_rev": 3},
        {"spec_rev": "r\ud800"},
        {"budget": Budget(wall_s=math.inf)},
        {"budget": Budget(turns=12.5)},
        {"dedupe_key": object()},
    ],
    ids=["number", "surrogate", "infinite", "fraction", "object"],
)
def test_what_could_not_be_read_again_is_not_written(values):
    (opened, *_) = EVENTS["episode.opened@1"]
    commit = Commit(id="c1", at=AT, events=(msgspec.structs.replace(opened, **values),))
    with pytest.raises(Unwritable, match=r"^c1: "):
        encode_commit(commit)
