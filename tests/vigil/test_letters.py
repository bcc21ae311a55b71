"""What people are told to do about a dead letter."""

from __future__ import annotations

import shlex

import pytest

from vigil.client.dead_letters import what_to_do

LETTER = {
    "status": "waiting",
    "reason": "unreadable",
    "output_key": None,
    "output_status": None,
    "letter_key": "events.7",
}
OF_AN_OUTPUT = {**LETTER, "output_key": "mail:1", "letter_key": "output.ab.1.0"}


def test_what_could_not_be_done_is_requeued():
    assert what_to_do(LETTER) == "vigil dead requeue events.7"


@pytest.mark.parametrize("key", ["mail:1", "disk 1", "$(reboot)"])
def test_an_output_is_tried_again_by_its_own_key(key):
    said = what_to_do({**LETTER, "output_key": key})
    assert said is not None
    assert shlex.split(said) == ["vigil", "outputs", "retry", key]


def test_a_key_is_never_an_option_of_the_command():
    assert what_to_do({**LETTER, "output_key": "--all"}) == "vigil outputs retry -- --all"


@pytest.mark.parametrize("status", ["failed", None])
def test_an_output_that_is_failed_as_far_as_is_known_is_tried_again(status):
    said = what_to_do({**OF_AN_OUTPUT, "output_status": status})
    assert said == "vigil outputs retry mail:1"


@pytest.mark.parametrize("status", ["proposed", "delivered", "canceled"])
def test_the_letter_of_an_output_that_has_gone_on_since_is_discarded(status):
    said = what_to_do({**OF_AN_OUTPUT, "output_status": status})
    assert said == "vigil dead discard --reason 'its output has gone on' output.ab.1.0"


@pytest.mark.parametrize("status", ["requeued", "discarded"])
def test_about_a_letter_that_is_settled_nothing_is_to_be_done(status):
    assert what_to_do({**LETTER, "status": status}) is None
