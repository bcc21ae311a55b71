"""What a new definition changes, in lines for people."""

from __future__ import annotations

import pytest

from engine.definitions.definition import VALUE_CHARS_MAX, difference

OLD = {"id": "m", "expectations": {"x": {"on": [{"event": ["a.b"]}], "cooldown_s": 60}}}


def with_x(**changed):
    return {"id": "m", "expectations": {"x": {**OLD["expectations"]["x"], **changed}}}


def test_nothing_is_said_of_what_is_the_same():
    assert difference(OLD, with_x()) == []
    assert difference(None, None) == []


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"cooldown_s": 90}, "~ expectations.x.cooldown_s: 60 → 90"),
        ({"priority": 5}, "+ expectations.x.priority: 5"),
        ({"strategy": {"ref": "c:D"}}, '+ expectations.x.strategy.ref: "c:D"'),
        ({"on": [{"event": ["a.b", "c"]}]},
         '~ expectations.x.on.0.event: ["a.b"] → ["a.b","c"]'),
        ({"on": [{"event": ["a.b"]}, {"every": "1h"}]}, '+ expectations.x.on.1.every: "1h"'),
        ({"cooldown_s": True}, "~ expectations.x.cooldown_s: 60 → true"),
        ({"escalation": {}}, "+ expectations.x.escalation: {}"),
        ({"note": None}, "+ expectations.x.note: null"),
    ],
)  # fmt: skip
def test_each_change_is_a_line(changed, line):
    assert difference(OLD, with_x(**changed)) == [line]
    undone = {"~": "~", "+": "-"}[line[0]]
    assert difference(with_x(**changed), OLD)[0].startswith(undone)


def test_lines_are_in_the_order_of_their_paths():
    lines = difference(OLD, {"id": "n", "domain": "d"})
    assert lines == [
        '+ domain: "d"',
        "- expectations.x.cooldown_s: 60",
        '- expectations.x.on.0.event: ["a.b"]',
        '~ id: "m" → "n"',
    ]


def test_all_of_a_new_definition_is_new():
    assert difference(None, {"id": "m"}) == ['+ id: "m"']
    assert difference({"id": "m"}, None) == ['- id: "m"']


def test_a_long_value_is_cut():
    (line,) = difference(None, {"id": "x" * 1000})
    assert line.endswith("…")
    assert len(line) < VALUE_CHARS_MAX + 10
