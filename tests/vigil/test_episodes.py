"""What became of an episode and of its outputs, as it is shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from streams.json import NOTHING, raw
from streams.model.events import StepKind, StepRecorded, StoredResult
from streams.model.outputs import OutputOutcome
from vigil.client.episodes import as_shown, came_to
from vigil.commands.episodes.show import result_of, shown_as

NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)

OWN = {"output_key": "mail:1", "adapter": "mail", "status": "delivered", "error_class": None}


def test_an_output_of_its_own_is_shown_with_its_outcome():
    outcomes = [OutputOutcome(output_key="mail:1", outcome="delivered")]
    assert came_to(outcomes, [OWN]) == [{**OWN, "outcome": "delivered"}]


def test_an_output_that_is_not_settled_has_no_outcome():
    assert came_to([], [OWN]) == [{**OWN, "outcome": None}]


def test_what_another_episode_sees_to_is_shown_too_and_what_a_dry_run_left_undone():
    outcomes = [
        OutputOutcome(output_key="mail:2", outcome="duplicate"),
        OutputOutcome(output_key="mail:3", outcome="dry_run"),
        OutputOutcome(output_key="mail:1", outcome="delivered"),
    ]
    assert came_to(outcomes, [OWN]) == [
        {**OWN, "outcome": "delivered"},
        {"output_key": "mail:2", "outcome": "duplicate", "error_class": None},
        {"output_key": "mail:3", "outcome": "dry_run", "error_class": None},
    ]


STORED = StepRecorded(
    step_no=1,
    kind=StepKind.TOOL_CALL,
    fingerprint="f",
    stored=StoredResult(digest="ab" * 32, size_bytes=5_242_882),
)


def test_a_step_shows_its_result_or_how_large_it_is():
    assert shown_as({"result": {"n": 1}, "result_size_bytes": None}) == {"n": 1}
    assert shown_as({"result": None, "result_size_bytes": 5_242_882}) == "5,242,882 bytes"
    assert shown_as({"result": "in short", "result_size_bytes": 5_242_882}) == "in short"
    assert shown_as({"result": None, "result_size_bytes": None}) is None


def test_a_replay_shows_the_digest_of_a_large_result_only_where_all_of_it_may_be_seen():
    assert as_shown(STORED) == STORED
    for less in ({"is_hidden": True}, {"result_shown": raw("in short")}):
        shown = as_shown(replace(STORED, **less))
        assert shown.stored == StoredResult(digest="", size_bytes=5_242_882)
    assert as_shown(replace(STORED, is_hidden=True)).result == NOTHING


@pytest.mark.parametrize(
    ("reason", "ref", "until", "says"),
    [
        ("wait", "bill 7", None, "waits for bill 7"),
        ("wait", "", NOW + timedelta(hours=1), "sleeps until 10:00 UTC (in 1h)"),
        ("wait", "", None, "waits for its children"),
        ("approval", None, None, "waits for approval"),
        ("nondeterministic_replay", None, None, "parked: waits for other code"),
    ],
)
def test_a_blocked_episode_says_what_it_waits_for(reason, ref, until, says):
    row = {"status": "blocked", "blocked_by": reason, "blocked_ref": ref, "blocked_until": until}
    assert result_of(row, NOW) == says


def test_an_episode_says_its_summary_and_one_without_what_went_wrong():
    detail = 'Traceback:\n  File "a.py"\nKeyError: host\n'
    ended = {"status": "failed", "error_class": None}
    assert result_of({**ended, "summary": "all well", "error_detail": detail}, NOW) == "all well"
    assert result_of({**ended, "summary": None, "error_detail": detail}, NOW) == "KeyError: host"
    assert result_of({**ended, "summary": "", "error_detail": None}, NOW) == ""
