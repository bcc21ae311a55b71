"""Lists of episodes, narrowed and page by page."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import pytest

from streams.model.events import EpisodeOpened, EpisodeStarted
from streams.model.triggers import Budget, EventTrigger
from tests.vigil.journal import Journal
from tests.vigil.program import NOWHERE
from tests.vigil.test_command_line import one_line


def put_episodes(vigil, *hosts, ids=()):
    """Open an episode of `dba` about each, with these or other ids; return the ids, in order."""
    journal, given, ids = Journal(vigil), iter(ids), []
    for host in hosts:
        ids.append(next(given, None) or str(uuid4()))
        trigger = EventTrigger(event_id=ids[-1], event_type="x", payload={}, entity_id=host)
        opened = EpisodeOpened(
            episode_id=ids[-1],
            actor_id="dba",
            expectation_id="shrink",
            trigger=trigger,
            dedupe_key=ids[-1],
            budget=Budget(),
        )
        started = EpisodeStarted(node="gone", attempt=1, claim_revision=1)
        journal.write(journal.stack.episode(ids[-1]), opened, started)
    return ids


def listed(vigil, *words):
    done = vigil.run("episodes", "list", "--json", *words)
    assert done.returncode == 0, done.stderr
    return [row["episode_id"] for row in json.loads(done.stdout)]


@pytest.fixture
def three(connected):
    """Three running episodes, about a, b and a, and their ids."""
    ids = put_episodes(connected, "a", "b", "a")
    with connected.running("project"):
        connected.wait_for("episodes", "list", until=lambda rows: len(rows) == 3)
    return ids


def test_the_list_can_be_narrowed_and_read_page_by_page(connected, three):
    assert listed(connected, "--subject", "a") == [three[2], three[0]]
    assert len(listed(connected, "--expectation", "shrink", "--since", "1h")) == 3
    assert listed(connected, "--until", "1h") == listed(connected, "--expectation", "no") == []

    page = connected.run("episodes", "list", "--limit", "2")

    assert f"there may be more: add --after {three[1]}" in " ".join(page.stderr.split())
    assert listed(connected, "--limit", "2", "--after", three[1]) == [three[0]]


def test_a_page_after_what_is_no_episode_is_refused(connected, three):
    done = connected.run("episodes", "list", "--after", str(UUID(int=7)))
    assert f"no episode {UUID(int=7)} in stack" in one_line(done, code=1)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--after", "x"), "'x' is no episode id"),
        (("--since", "yesterday"), "--since: 'yesterday' is not a time"),
        (("--until", "2030-01-01T00:00:00"), "--until: '2030-01-01T00:00:00' is in no time zone"),
    ],
)
def test_a_page_or_a_time_that_is_none_is_one_line(vigil, words, why):
    assert why in one_line(vigil.run("episodes", "list", *words, **NOWHERE), code=2)
