"""Texts of definitions say one object, the same to everybody, or are refused in one line."""

from __future__ import annotations

import pytest

from engine.definitions.text import DEPTH_MAX, TEXT_BYTES_MAX, format_of, read
from engine.errors import BadDefinition

SAID = {"a": 1, "b": [1.5, True, None, "x"], "c": {"d": "on"}}


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('{"a": 1, "b": [1.5, true, null, "x"], "c": {"d": "on"}}', "json"),
        ("a: 1\nb: [1.5, true, ~, x]\nc:\n  d: on\n", "yaml"),
        (b"# in bytes\na: 1\nb:\n  - 1.5\n  - true\n  - null\n  - 'x'\nc: {d: on}\n", "yaml"),
    ],
)
def test_json_and_yaml_say_the_same(text, form):
    assert read(text, form) == SAID


def test_toml_says_times_as_texts():
    said = read('a = 1\nb = [1.5, true]\nat = 2030-01-01T00:00:00Z\n[c]\nd = "on"\n', "toml")
    assert said == {"a": 1, "b": [1.5, True], "at": "2030-01-01T00:00:00Z", "c": {"d": "on"}}


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("Yes", "Yes"),
        ("12:30", "12:30"),
        ("2030-01-01", "2030-01-01"),
        ("1_000", "1_000"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("-7", -7),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("'5'", "5"),
        ("", None),
        ("True", True),
        ("{on: off}", {"on": "off"}),
        ("{<<: x}", {"<<": "x"}),
    ],
)
def test_yaml_is_read_by_the_core_schema_of_1_2(scalar, value):
    assert read(f"a: {scalar}", "yaml") == {"a": value}


DEEP = "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1)
DEEPEST = "[" * 100_000


@pytest.mark.parametrize(
    ("text", "form", "problem"),
    [
        ("", "json", "not JSON"),
        ("", "yaml", "write an object, not None"),
        ("[1]", "json", "write an object"),
        ("- a", "yaml", "write an object"),
        ('{"a": 1, "a": 2}', "json", "'a' is said twice"),
        ("a: 1\nb: 2\na: 3", "yaml", "line 3: 'a' is said twice"),
        ("a = 1\na = 2", "toml", "not TOML"),
        ('{"a": NaN}', "json", "NaN is no number"),
        ("a: .nan", "yaml", "not finite"),
        ("a: -.inf", "yaml", "not finite"),
        ("a = inf", "toml", "not finite"),
        ("a: &x 1\nb: 2", "yaml", "line 1: anchors"),
        ("a: {b: 1}\nc: *b", "yaml", "line 2: anchors"),
        ("a: !!str 1", "yaml", "line 1: tags"),
        ("a: !!python/object/apply:os.getcwd []", "yaml", "line 1: tags"),
        ("a: !mine 1", "yaml", "line 1: tags"),
        ("1: a", "yaml", "line 1: a key must be a text"),
        ("? [a]\n: 1", "yaml", "a key must be a text"),
        ("a: 1\n---\nb: 1", "yaml", "another document"),
        ("a: [1", "yaml", "line 1"),
        (f"a: {DEEP}", "yaml", "more than 64"),
        (f'{{"a": {DEEP}}}', "json", "more than 64"),
        (f"a = {DEEP}", "toml", "more than 64"),
        (DEEPEST, "json", "more than 64"),
        (DEEPEST, "yaml", "more than 64"),
        (f"a = {DEEPEST}", "toml", "more than 64"),
        (b"\xff", "json", "not valid Unicode"),
        ("\ud800", "json", "not valid Unicode"),
        (" " * (TEXT_BYTES_MAX + 1), "json", "262,145 bytes, the limit is 262,144"),
    ],
)
def test_what_says_no_object_is_refused_in_one_line(text, form, problem):
    with pytest.raises(BadDefinition, match=problem) as refused:
        read(text, form)
    assert "\n" not in str(refused.value)


def test_many_aliases_make_nothing_large():
    bombs = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))
    with pytest.raises(BadDefinition, match="anchors"):
        read(f"a0: &a0 x\n{bombs}", "yaml")


@pytest.mark.parametrize(
    ("file", "form"),
    [("a.json", "json"), ("b/a.yaml", "yaml"), ("a.YML", "yaml"), ("a.b.toml", "toml")],
)
def test_the_name_of_a_file_says_its_format(file, form):
    assert format_of(file) == form


@pytest.mark.parametrize("file", ["a", "a.py", "json"])
def test_a_file_of_another_name_is_of_no_known_format(file):
    with pytest.raises(BadDefinition, match=r"use \.json, \.yaml, \.yml, \.toml"):
        format_of(file)
