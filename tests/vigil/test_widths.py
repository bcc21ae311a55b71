"""Tables fit the terminal they are read in, and what people copy from them stays whole."""

from __future__ import annotations

from vigil.printing.tables import TEXT_MIN, WHOLE_MAX, fit, left_out

ID = "abd38715-3d02-87d7-8e0b-8fa9e40e619c"
TEXT = "the disk of web-1 is 97% full, and nobody has looked at it since Monday"


def test_a_table_that_fits_is_as_wide_as_what_it_says_also_where_that_is_nothing():
    cells = {"id": [ID], "position": [""], "status": ["failed"]}

    assert fit(cells, width=80, spare=["status"]) == {"id": 36, "position": 8, "status": 6}


def test_a_text_gives_way_and_an_id_does_not():
    cells = {"id": [ID], "summary": [TEXT]}

    assert fit(cells, width=70) == {"id": 36, "summary": 30}


def test_what_says_nothing_goes_first():
    cells = {"id": [ID], "position": [""], "status": ["failed"]}

    narrow = fit(cells, width=46, spare=["status"])

    assert narrow == {"id": 36, "status": 6}
    assert left_out(cells, narrow) == []


def test_what_matters_least_goes_next():
    cells = {"id": [ID], "turns": ["12"], "actor": ["watcher"], "status": ["failed"]}

    narrow = fit(cells, width=57, spare=["turns", "actor"])

    assert narrow == {"id": 36, "actor": 7, "status": 6}
    assert left_out(cells, narrow) == ["turns"]


def test_what_is_small_may_stay_where_what_matters_more_has_no_room():
    cells = {"id": [ID], "turns": ["12"], "actor": ["a" * 40]}

    assert fit(cells, width=50, spare=["turns", "actor"]) == {"id": 36, "turns": 5}


def test_what_matters_more_has_its_room_before_what_matters_less_has_any():
    cells = {"id": [ID], "error": [TEXT], "actor": ["watcher"]}
    spare = ["actor", "error"]

    assert fit(cells, width=70, spare=spare) == {"id": 36, "error": 21, "actor": 7}
    assert fit(cells, width=70, spare=spare, rooms={"error": 30}) == {"id": 36, "error": 30}


def test_where_there_is_less_room_than_wanted_a_text_has_what_there_is():
    cells = {"id": [ID], "error": [TEXT]}

    assert fit(cells, width=60, spare=["error"], rooms={"error": 64}) == {"id": 36, "error": 20}


def test_a_time_stays_on_one_line():
    assert fit({"at": ["2030-01-31 09:00:00"], "summary": [TEXT]}, width=42) == {
        "at": TEXT_MIN,
        "summary": TEXT_MIN,
    }


def test_a_long_word_is_broken_only_where_there_is_no_room_for_its_beginning():
    cells = {"result": ["x" * 500]}

    assert fit(cells, width=80) == {"result": 78}
    assert fit(cells, width=WHOLE_MAX + 1) is None


def test_without_room_for_what_must_be_there_no_table_fits():
    assert fit({"id": [ID], "status": ["failed"]}, width=40) is None


def test_wide_letters_count_for_the_room_they_take():
    assert fit({"host": ["日本"]}, width=80) == {"host": 4}


def test_a_word_that_nobody_copies_is_cut_before_a_text_has_less_room():
    cells = {"id": [ID], "expectation": ["endpoint_is_healthy"], "error": [TEXT]}

    narrow = fit(cells, width=75, spare=["error"], rooms={"error": 64}, cuts=["expectation"])

    assert narrow == {"id": 36, "expectation": 11, "error": 22}


def test_a_word_that_may_be_cut_is_whole_where_there_is_room():
    cells = {"id": [ID], "expectation": ["endpoint_is_healthy"]}

    assert fit(cells, width=80, cuts=["expectation"]) == {"id": 36, "expectation": 19}
