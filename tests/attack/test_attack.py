"""Nothing is lost, repeated or altered whatever happens at a message: `make attack`, in small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle, islice, pairwise, product, starmap
from pathlib import Path
from typing import Final

from tests.attack.faults import Case, Fault, cases
from tests.attack.run import attacking
from tests.attack.stories import STORIES
from tests.size import is_full

STORY: Final = "sequence"
"""The one in which each commit is struck."""

OTHERS: Final = ("asking", "saga")

SEED: Final = 1

FIRST_MAX: Final = len(OTHERS) * len(Fault)
"""Among so many cases are all faults."""

COMMIT: Final = "episode."

BOTH: Final = is_full("attacked")


async def test_nothing_is_lost_repeated_or_altered_whatever_happens_at_a_message(tmp_path: Path):
    async with attacking(tmp_path) as attack:
        counted = await attack.count((STORY, *OTHERS))
        points = {outcome.case.story: outcome.points for outcome in counted}
        outcomes = await attack.attempt(_small(points))

    assert {str(each.case): each.breaches for each in counted + outcomes if each.breaches} == {}
    assert {each.case.fault for each in outcomes if each.struck} == set(Fault)


def _small(points: Mapping[str, Sequence[str]]) -> list[Case]:
    """Return a loss or a delay of each commit of one story, in turn, and each fault once in another
    one. `VIGIL_TEST_SIZE=attacked` has a loss and a delay of each."""
    commits = [point for point in points[STORY] if point.startswith(COMMIT)]
    faults = (Fault.LATE, Fault.DROP)
    in_turn = zip(commits, cycle(faults), strict=False)
    of_one = starmap(partial(Case, STORY), product(commits, faults) if BOTH else in_turn)
    some = list(islice(cases({story: points[story] for story in OTHERS}, SEED), FIRST_MAX))
    return [*of_one, *(next(case for case in some if case.fault is fault) for fault in Fault)]


def test_all_kinds_of_faults_come_in_every_story_before_one_comes_again():
    points = {story: numbered(10) for story in STORIES}
    first = list(islice(cases(points, 1), len(STORIES) * len(Fault)))

    assert len({(case.story, case.fault) for case in first}) == len(first)


def test_each_fault_comes_at_each_point_once():
    every = list(cases({"sequence": numbered(13), "saga": numbered(92)}, 1))

    assert len(every) == len(set(every)) == (13 + 92) * len(Fault)


def test_points_that_come_first_are_far_apart():
    points = numbered(100)
    first = islice(cases({"saga": points}, 1), 5 * len(Fault))
    dropped = sorted(points.index(case.point) for case in first if case.fault is Fault.DROP)

    assert all(later - earlier >= 10 for earlier, later in pairwise(dropped))


def test_a_seed_attacks_the_same_points_again():
    points = {"sequence": numbered(13), "saga": numbered(92)}

    assert list(cases(points, 1)) == list(cases(points, 1))
    assert list(cases(points, 1)) != list(cases(points, 2))


def test_a_case_says_what_repeats_it():
    case = Case("sequence", "episode.7", Fault.DROP)

    assert str(case) == "make attack STORY=sequence POINT=episode.7 FAULT=drop"


def numbered(count: int) -> list[str]:
    return [f"episode.{number}" for number in range(1, count + 1)]
