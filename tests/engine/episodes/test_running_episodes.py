"""What a node runs, and how it is canceled."""

from __future__ import annotations

from engine.episodes.attempt import Attempt, RunningEpisodes
from engine.episodes.episode import CancelEpisode
from tests.engine.crew import attempt_of
from tests.engine.stage import Scripted, app_of, opening

UNWANTED = CancelEpisode(error_class="unwanted", error_detail="by ada")

APP = app_of(Scripted())


def run_of(id_="x1") -> Attempt:
    return attempt_of(opening(APP, id_=id_))


class Code:
    """Code that counts how often it is cut off."""

    cuts = 0

    def cut_off(self):
        self.cuts += 1


def test_what_runs_is_found_by_its_episode_and_what_does_not_is_not():
    running, run = RunningEpisodes(), run_of()
    episode_id = run.opened.episode_id
    with running.during(run):
        assert running.wish(episode_id, UNWANTED)
        assert running.of("worker", "thing") == [run]
        assert running.of("worker", "other") == running.of("other", "thing") == []
    assert not running.wish(episode_id, UNWANTED)
    assert run.canceled is UNWANTED


def test_the_first_who_cancels_an_episode_says_why():
    run = run_of()
    run.cancel(UNWANTED)
    run.cancel(CancelEpisode(error_class="second"))
    assert run.canceled is UNWANTED


def test_a_node_that_has_an_episode_again_keeps_the_newer_run():
    running, older, newer = RunningEpisodes(), run_of(), run_of()
    overlapping = running.during(newer)
    with running.during(older):
        overlapping.__enter__()
    assert running.of("worker", "thing") == [newer]
    overlapping.__exit__(None, None, None)
    assert running.of("worker", "thing") == []


def test_who_drives_it_is_interrupted_only_while_that_can_do_no_harm():
    early, late, early_code, late_code = run_of(), run_of(), Code(), Code()
    with early.running(early_code):
        early.cancel(UNWANTED)
    with late.running(late_code):
        pass
    late.cancel(UNWANTED)
    assert (early_code.cuts, late_code.cuts) == (1, 0)
    assert late.canceled is UNWANTED


def test_what_is_to_be_canceled_is_so_from_the_start_until_that_is_forgotten():
    running, early, late = RunningEpisodes(), run_of(), run_of()
    assert not running.wish(early.opened.episode_id, UNWANTED)
    with running.during(early):
        assert early.canceled is UNWANTED
    running.forget(early.opened.episode_id)
    with running.during(late):
        assert late.canceled is None


def test_of_too_many_wishes_the_oldest_is_forgotten(monkeypatch):
    monkeypatch.setattr("engine.episodes.attempt.WISHES_MAX", 2)
    running = RunningEpisodes()
    for name in ("x1", "x2", "x3", "x3"):
        running.wish(run_of(name).opened.episode_id, UNWANTED)
    kept = []
    for name in ("x1", "x2", "x3"):
        with running.during(run := run_of(name)):
            kept.append(run.canceled is not None)
    assert kept == [False, True, True]
