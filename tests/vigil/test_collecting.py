"""How often a program that runs for long looks for garbage in cycles."""

from __future__ import annotations

import gc

import pytest

from vigil.serving.signals import COLLECT_EVERY, run_program


@pytest.fixture
def set_by_the_app():
    before = gc.get_threshold()
    yield gc.set_threshold
    gc.set_threshold(*before)


async def threshold():
    return gc.get_threshold()[0]


def test_a_program_that_runs_for_long_looks_for_garbage_seldom(set_by_the_app):
    set_by_the_app(700, 10, 10)

    assert run_program(threshold()) == COLLECT_EVERY


@pytest.mark.parametrize("every", [0, 5 * COLLECT_EVERY])
def test_an_app_that_looks_less_often_or_never_is_left_alone(set_by_the_app, every):
    set_by_the_app(every, 10, 10)

    assert run_program(threshold()) == every


def test_what_was_set_before_is_set_again_afterwards(set_by_the_app):
    set_by_the_app(700, 10, 10)

    run_program(threshold())
    assert gc.get_threshold() == (700, 10, 10)
