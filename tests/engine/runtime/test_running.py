"""What a node runs, and how it is canceled."""

from __future__ import annotations

from engine.actions import converge
from engine.runtime.running import Run, Running
from tests.engine.runtime.stage import Scripted, app_of, opening

APP = app_of(Scripted())


def run_of(id_="x1") -> Run:
    return Run(opening(APP, id_=id_))


def canceled(run: Run) -> str:
    return run.canceled.error_class if run.canceled else ""


def test_what_runs_is_found_by_its_episode_and_what_does_not_is_not():
    running, run = Running(), run_of()
    episode_id = run.opened.episode_id
    with running.during(run):
        assert running.cancel(episode_id, error_class="unwanted", detail="by ada")
        assert running.of("worker", "thing") == [run]
        assert running.of("worker", "other") == running.of("other", "thing") == []
    assert not running.cancel(episode_id, error_class="late", detail="")
    assert run.canceled.error_detail == "by ada"


def test_the_first_who_cancels_an_episode_says_why():
    run = run_of()
    run.cancel(error_class="first", detail="")
    run.cancel(error_class="second", detail="")
    assert canceled(run) == "first"


def test_a_node_that_has_an_episode_again_keeps_the_newer_run():
    running, older, newer = Running(), run_of(), run_of()
    with running.during(newer):
        with running.during(older), running.during(newer):
            pass
    with running.during(older):
        inner = running.during(newer)
        inner.__enter__()
    assert running.of("worker", "thing") == [newer]
    inner.__exit__(None, None, None)
    assert running.of("worker", "thing") == []


def test_who_drives_it_is_interrupted_only_while_that_can_do_no_harm():
    calls, early, late = [], run_of(), run_of()
    with early.interrupting(lambda: calls.append("early")):
        early.cancel(error_class="unwanted", detail="")
    with late.interrupting(lambda: calls.append("late")):
        pass
    late.cancel(error_class="unwanted", detail="")
    assert calls == ["early"]
    assert canceled(late) == "unwanted"
