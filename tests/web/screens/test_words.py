"""Numbers of the console in words that people read: marks of time, options, how far rows are."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from vigil.client.stack.nodes import StreamPosition
from vigil.web.drawing.charts import scale
from vigil.web.drawing.parts import pill
from vigil.web.screens.actors import _option
from vigil.web.screens.overview import lag


def position(head: int, rows: int | None, trouble: str | None = None) -> StreamPosition:
    return StreamPosition(
        part="journal", head=head, rows=rows, trouble=trouble, reactor=None, reactor_node=""
    )


@pytest.mark.parametrize(
    ("lasts_s", "marks"),
    [
        (0.005, ["+0 ms", "+1.25 ms", "+2.5 ms", "+3.75 ms", "+5 ms"]),
        (6.0, ["+0 s", "+1.5 s", "+3 s", "+4.5 s", "+6 s"]),
        (5_400.0, ["+0 min", "+22.5 min", "+45 min", "+67.5 min", "+90 min"]),
        (0.0, ["+0 ms"] * 5),
    ],
)
def test_all_marks_of_a_timeline_have_one_unit_and_say_where_they_stand(lasts_s, marks):
    assert re.findall(r">([^<]+)</text>", str(scale(lasts_s))) == marks


def test_an_option_in_seconds_is_told_as_a_length_of_time():
    assert _option("cooldown_s", 3_600) == ("Cooldown", "1h")
    assert _option("subject_key", "sku") == ("Subject key", "sku")


@pytest.mark.parametrize(
    ("positions", "says"),
    [
        ([], "rows are current"),
        ([position(8, 8), position(3, None)], "rows are current"),
        ([position(8, 7), position(5, 4)], "rows 2 commits behind"),
        ([position(8, 7)], "rows 1 commit behind"),
        ([position(8, 7, "unreadable")], "rows of journal stopped"),
    ],
)
def test_the_overview_says_how_far_the_rows_are(positions, says):
    assert lag(positions) == says


@pytest.mark.parametrize(
    ("state", "turns"), [("running", True), ("low", False), ("proposed", False), ("done", False)]
)
def test_only_the_icon_of_what_runs_turns(state, turns):
    assert ("turns" in str(pill(state))) is turns


def test_nothing_turns_on_a_page_that_does_not_change_by_itself():
    style = files("vigil.web").joinpath("static", "console.css").read_text()

    assert re.findall(r"([^{}\n]*)\{ animation: turn ", style) == ["[data-live] .pill.turns svg "]
