"""Nothing is lost, repeated or altered whatever happens at a message: `make attack`, in small."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from tests.attack.faults import Case, Fault, cases
from tests.attack.run import attacking
from tests.attack.stories import STORIES

STORY: Final = "sequence"
"""The one in which each commit is struck."""

OTHERS: Final = ("asking", "saga")

SEED: Final = 1

COMMIT: Final = re.compile(r"[^.]+\.episode\.[^.]+")


async def test_nothing_is_lost_repeated_or_altered_whatever_happens_at_a_message(tmp_path: Path):
    async with attacking(tmp_path) as attack:
        counted = await attack.count((STORY, *OTHERS))
        points = {outcome.case.story: outcome.points for outcome in counted}
        outcomes = await attack.attempt(_small(points))

    assert {str(each.case): each.breaches for each in counted + outcomes if each.breaches} == {}
    assert {each.case.fault for each in outcomes if each.struck} == set(Fault)


def _small(points: Mapping[str, Sequence[str]]) -> list[Case]:
    """Return a loss and a delay of each commit of one story, and each fault once in the others."""
    commits = [n for n, subject in enumerate(points[STORY], start=1) if COMMIT.fullmatch(subject)]
    of_one = [Case(STORY, point, fault) for point in commits for fault in (Fault.DROP, Fault.LATE)]
    others = {story: len(points[story]) for story in OTHERS}
    return [*of_one, *islice(cases(others, SEED), len(OTHERS) * len(Fault))]


def test_all_kinds_of_faults_come_in_every_story_before_one_comes_again():
    points = dict.fromkeys(STORIES, 10)
    first = list(islice(cases(points, 1), len(STORIES) * len(Fault)))

    assert len({(case.story, case.fault) for case in first}) == len(first)


def test_each_fault_comes_at_each_point_once():
    every = list(cases({"sequence": 13, "saga": 92}, 1))

    assert len(every) == len(set(every)) == (13 + 92) * len(Fault)


def test_points_that_come_first_are_far_apart():
    first = list(islice(cases({"saga": 100}, 1), 5 * len(Fault)))
    dropped = sorted(case.point for case in first if case.fault is Fault.DROP)

    assert all(later - earlier >= 10 for earlier, later in pairwise(dropped))


def test_a_seed_attacks_the_same_points_again():
    points = {"sequence": 13, "saga": 92}

    assert list(cases(points, 1)) == list(cases(points, 1))
    assert list(cases(points, 1)) != list(cases(points, 2))


def test_a_case_says_what_repeats_it():
    case = Case("sequence", 7, Fault.DROP)

    assert str(case) == "make attack STORY=sequence POINT=7 FAULT=drop"
