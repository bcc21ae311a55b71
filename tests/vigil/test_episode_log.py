"""The log of an episode: what it did, as far as people may see it, and while it does it."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from streams.json import raw
from streams.model.deltas import Delta, DeltaEnd
from streams.model.events import EndStatus
from streams.model.triggers import LogStrategy
from tests.projections import lives
from tests.vigil.journal import Journal
from tests.vigil.program import RUN_S_MAX
from tests.vigil.test_command_line import one_line

SECRET = "hunter2"


@pytest.fixture
def journal(connected):
    return Journal(connected)


@pytest.fixture
def projected(connected):
    """The command, while the rows follow the journal."""
    with connected.running("project"):
        yield connected


def begin(journal, *events, strategy=LogStrategy.FULL_DEBUG):
    """Have an episode begin with `events` after its first step; return its id."""
    id_ = str(uuid4())
    opened = replace(lives.opened(), episode_id=id_, log_strategy=strategy)
    step = replace(lives.recorded(1), args=raw({"path": SECRET}))
    journal.write(journal.stack.episode(id_), opened, lives.started(), step, *events)
    return id_


def log_of(vigil, id_, *words, lines):
    """Return the log once it has so many lines."""
    rows = vigil.wait_for("episodes", "log", id_, *words, until=lambda rows: len(rows) == lines)
    done = vigil.run("episodes", "log", id_, *words)
    assert done.returncode == 0, done.stderr
    return rows, done.stdout, " ".join(done.stderr.split())


def test_a_full_log_has_a_line_for_all_that_happened_with_its_details(projected, journal):
    id_ = begin(journal, lives.converged(), lives.finished())
    rows, text, _ = log_of(projected, id_, lines=4)
    assert [row["kind"] for row in rows] == [
        "episode_opened", "episode_started", "tool_call", "episode_finished",
    ]  # fmt: skip
    lines = text.splitlines()
    assert lines[0].endswith("opened by event resource.updated about host h1")
    assert any(each.endswith("tool_call disk.clean (7 ms)") for each in lines)
    assert f'  - args: `{{"path": "{SECRET}"}}`' in lines
    assert any("done: the disk is full" in each for each in lines)


def test_a_log_can_be_shown_in_short(projected, journal):
    id_ = begin(journal, lives.converged(), lives.finished())
    log_of(projected, id_, lines=4)
    _, timeline, _ = log_of(projected, id_, "--strategy", "timeline", lines=4)
    _, summary, _ = log_of(projected, id_, "--strategy", "summary_only", lines=1)
    assert SECRET not in timeline
    assert len(timeline.splitlines()) == 4
    assert summary.rstrip().endswith("done: the disk is full (9 ms)")


def test_an_episode_whose_strategy_is_none_has_no_log_and_says_so(projected, journal):
    id_ = begin(journal, lives.finished(), strategy=LogStrategy.NONE)
    projected.wait_for("episodes", "show", id_, until=lambda row: row["status"] == "done")
    rows, text, aside = log_of(projected, id_, lines=0)
    assert (rows, text, aside) == ([], "", "nothing to show: its log strategy is none")


def test_a_tail_prints_what_happens_and_ends_with_the_episode(projected, journal):
    id_ = begin(journal)
    with projected.running("episodes", "tail", id_) as tail:
        tail.wait_said("tool_call disk.clean")
        journal.write(journal.stack.episode(id_), lives.recorded(2))
        journal.write(journal.stack.episode(id_), lives.finished(EndStatus.FAILED))
        said = tail.wait_said("failed")
        assert tail.process.wait(RUN_S_MAX) == 0
    assert said.count("tool_call disk.clean") == 2, "each line once"


def delta(place, text="", **more):
    return Delta(path="1.m1.1", attempt=1, place=place, text=text, **more)


def test_a_tail_prints_what_a_model_answers_before_its_step_is_there(projected, journal):
    id_ = begin(journal)
    with projected.running("episodes", "tail", id_) as tail:
        tail.wait_said("tool_call disk.clean")
        journal.tell(id_, delta(0, "the disk\nis "), delta(1, "full", end=DeltaEnd.DONE))
        tail.wait_said("1.m1.1: the disk\n1.m1.1: is full\n")
        journal.write(journal.stack.episode(id_), lives.finished())
        assert tail.process.wait(RUN_S_MAX) == 0


def test_a_tail_as_json_has_a_line_for_each_delta(projected, journal):
    id_ = begin(journal)
    with projected.running("episodes", "tail", id_, "--json") as tail:
        tail.wait_said("tool_call")
        journal.tell(id_, delta(0, "the disk "), delta(1, "is full", end=DeltaEnd.DONE))
        tail.wait_said('"end":"done"')
        journal.write(journal.stack.episode(id_), lives.finished())
        said = tail.wait_said("episode_finished")
        assert tail.process.wait(RUN_S_MAX) == 0
    rows = [json.loads(line) for line in said.splitlines()]
    deltas = [(row["place"], row["text"]) for row in rows if row["kind"] == "delta"]
    assert deltas == [(0, "the disk "), (1, "is full")]


def test_a_tail_goes_on_without_deltas_where_the_server_of_the_log_is_away(projected, journal):
    id_ = begin(journal, lives.finished())
    projected.wait_for("episodes", "show", id_, until=lambda row: row["status"] == "done")
    away = ("--nats-url", "nats://127.0.0.1:1")
    silent = projected.run("episodes", "tail", id_, "--no-deltas", *away)
    assert (silent.returncode, silent.stderr) == (0, "")
    assert len(silent.stdout.splitlines()) > 1
    done = projected.run("episodes", "tail", id_, *away)
    assert (done.returncode, done.stdout) == (0, silent.stdout)
    said = " ".join(done.stderr.split())
    assert said.startswith("what models answer is not shown before their steps: ")
    assert "127.0.0.1:1" in said
    rows = projected.run("episodes", "tail", id_, "--json", *away).stdout.splitlines()
    assert "no_deltas" not in {json.loads(each)["kind"] for each in rows}


def test_a_tail_as_json_has_a_row_on_each_line(projected, journal):
    id_ = begin(journal, lives.finished())
    projected.wait_for("episodes", "show", id_, until=lambda row: row["status"] == "done")
    done = projected.run("episodes", "tail", id_, "--json")
    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert kinds == ["episode_opened", "episode_started", "tool_call", "episode_finished"]


def test_a_tail_waits_no_longer_than_one_likes(projected, journal):
    id_ = begin(journal)
    log_of(projected, id_, lines=3)
    done = projected.run("episodes", "tail", id_, "--timeout", "0.1")
    assert "has not ended after 0.1 s" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("words", [("log",), ("tail", "--timeout", "0")])
def test_the_log_of_no_episode_is_refused(projected, journal, words):
    begin(journal)
    command, *more = words
    done = projected.run("episodes", command, str(UUID(int=7)), *more)
    assert f"no episode {UUID(int=7)} in stack" in one_line(done, code=1)
