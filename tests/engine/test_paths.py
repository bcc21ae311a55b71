"""Where in a payload a path leads."""

from __future__ import annotations

import pytest

from engine.validation import PATH_CHARS_MAX, problem_of_path
from streams.json import ABSENT, value_at


@pytest.mark.parametrize(
    ("payload", "path", "value"),
    [
        ({"host": "web-1"}, "host", "web-1"),
        ({"disk": {"used": 0.9}}, "disk.used", 0.9),
        ({"a": {"b": {"c": 1}}}, "a.b.c", 1),
        ({"a": {"b": {"c": 1}}}, "a.b", {"c": 1}),
        ({"a": None}, "a", None),
        ({"a": {"b": None}}, "a.b", None),
    ],
)
def test_a_path_leads_into_nested_objects(payload, path, value):
    assert value_at(payload, path) == value


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({}, "host"),
        ({"disk": {}}, "disk.used"),
        ({"disk": None}, "disk.used"),
        ({"disk": "used"}, "disk.used"),
        ({"disk": 7}, "disk.used"),
        ({"used": 1}, "disk.used"),
    ],
)
def test_where_there_is_nothing_it_is_absent(payload, path):
    assert value_at(payload, path) is ABSENT


@pytest.mark.parametrize("path", ["disks.0", "disks.0.used", "disks.used"])
def test_lists_are_not_looked_into(path):
    assert value_at({"disks": [{"used": 1}]}, path) is ABSENT


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ({"a.b.c": 1, "a": {"b.c": 2, "b": {"c": 3}}}, 1),
        ({"a": {"b.c": 2, "b": {"c": 3}}}, 2),
        ({"a": {"b": {"c": 3}}}, 3),
        ({"a.b.c": None, "a": {"b": {"c": 3}}}, None),
        ({"a.b": {"c": 4}}, ABSENT),
    ],
)
def test_a_key_that_is_literally_the_rest_of_the_path_wins(payload, value):
    assert value_at(payload, "a.b.c") == value


@pytest.mark.parametrize("path", ["host", "disk.used", "a.b.c", "ä.ö", "x" * PATH_CHARS_MAX])
def test_a_path_is_words_joined_by_dots(path):
    assert problem_of_path(path) is None


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "'' is not a path; use words joined by dots, such as 'disk.used'"),
        (".", "'.' is not a path"),
        ("disk.", "'disk.' is not a path"),
        (".used", "'.used' is not a path"),
        ("disk..used", "'disk..used' is not a path"),
        (7, "7 is not text"),
        (None, "None is not text"),
        ("x" * 513, "a path of 513 characters, the limit is 512"),
    ],
)
def test_what_is_no_path_is_told_so(path, problem):
    assert problem in problem_of_path(path)
