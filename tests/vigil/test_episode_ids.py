"""Episodes are named by as much of their ids as tells them apart, or as the latest one."""

from __future__ import annotations

import re

import pytest

from tests.vigil.program import NOWHERE
from tests.vigil.test_command_line import one_line
from tests.vigil.test_listing import put_episodes

IDS = [
    "0a1b0000-0000-4000-8000-000000000001",
    "0a1b0000-0000-4000-8000-000000000002",
    "0a2b0000-0000-4000-8000-000000000003",
    *(f"ff{number}00000-0000-4000-8000-000000000000" for number in range(7)),
]
READING = ["show", "steps", "log", "replay"]


@pytest.fixture
def known(connected):
    """Episodes of `IDS`, opened in that order but for the third, which is the last."""
    first, then = [*IDS[:2], *IDS[3:]], IDS[2:3]
    put_episodes(connected, *"a" * len(first), ids=first)
    put_episodes(connected, "z", ids=then)
    with connected.running("project"):
        connected.wait_for("episodes", "list", until=lambda rows: len(rows) == len(IDS))
    return connected


def test_so_much_of_an_id_as_tells_it_apart_is_enough(known):
    for beginning in ("0a2", "0A2B", "0a2b0000-00", "0a2b00000000"):
        assert known.ask("episodes", "show", beginning)["episode_id"] == IDS[2]


def untimed(done):
    """Return what was printed, without how long ago anything was."""
    return re.sub(r"\d+s ago", "", done.stdout)


@pytest.mark.parametrize("command", READING)
def test_every_command_that_reads_takes_a_beginning_or_the_latest(known, command):
    by_id = untimed(known.run("episodes", command, IDS[2]))
    assert untimed(known.run("episodes", command, "0a2")) == by_id
    assert untimed(known.run("episodes", command, "--latest")) == by_id


def test_a_beginning_of_several_ids_names_them_in_one_line(known):
    done = known.run("episodes", "show", "0a1")
    several = f"'0a1' begins the ids of several episodes: {IDS[0]}, {IDS[1]}"
    assert one_line(done, code=2) == f"vigil: {several}\n"

    named = one_line(known.run("episodes", "log", "ff"), code=2)
    assert (named.count("-4000-8000-"), named[-4:]) == (5, ", …\n")


def test_a_beginning_of_none_says_where_to_look(known):
    said = one_line(known.run("episodes", "steps", "77"), code=1)
    assert "has an id that begins with '77'; `vigil episodes list` shows those" in said


def test_the_result_of_a_step_is_of_a_beginning_or_the_latest_too(known):
    for words in (("0a2",), ("--latest",)):
        said = one_line(known.run("episodes", "result", *words, "--step", "7"), code=1)
        assert f"no step 7 of an episode {IDS[2]}" in said


def test_what_acts_takes_them_too(known):
    canceled = known.run("episodes", "cancel", "0a1b0000-0000-4000-8000-000000000001", "0a2")
    latest = known.run("episodes", "cancel", "--latest")
    forked = known.run("episodes", "fork", "0a2", "--at", "7")
    denied = known.run("episodes", "deny", "0a2", "--yes")

    assert [line.partition(":")[0] for line in canceled.stdout.splitlines()] == [IDS[0], IDS[2]]
    assert latest.stdout.startswith(IDS[2])
    assert "7" in one_line(forked, code=1)
    assert IDS[2] in one_line(denied, code=1)


def test_the_next_page_of_a_list_begins_after_a_beginning(known):
    whole = known.ask("episodes", "list", "--after", IDS[2])
    assert known.ask("episodes", "list", "--after", "0a2") == whole


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("show",), "which episode? give its id, or --latest"),
        (("show", IDS[0], "--latest"), "give an id, or --latest, not both"),
        (("show", "0a1x"), "'0a1x' is no episode id"),
        (("show", ""), "'' is no episode id"),
        (("show", f"{IDS[0]}0"), "is no episode id"),
        (("cancel",), "name the episodes, or give --latest, or --actor"),
        (("cancel", IDS[0], "--latest"), "name the episodes, or give --latest, or --actor"),
        (("cancel", "--latest", "--actor", "a"), "name the episodes, or give --latest, or --actor"),
    ],
)
def test_what_names_no_episode_is_refused_before_any_server_is_asked(vigil, words, why):
    assert why in one_line(vigil.run("episodes", *words, **NOWHERE), code=2)
