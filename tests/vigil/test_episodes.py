"""What became of an episode and of its outputs, as it is shown."""

from __future__ import annotations

from streams.model.outputs import OutputOutcome
from vigil.commands.episodes.show import came_to, says

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


def test_an_episode_says_its_summary_and_one_without_what_went_wrong():
    detail = 'Traceback:\n  File "a.py"\nKeyError: host\n'
    assert says({"summary": "all well", "error_detail": detail}) == "all well"
    assert says({"summary": None, "error_detail": detail}) == "KeyError: host"
    assert says({"summary": "", "error_detail": None}) == ""
