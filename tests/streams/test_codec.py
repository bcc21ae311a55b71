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
