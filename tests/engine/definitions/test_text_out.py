"""What is written can be read again, and is the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.definitions import read
from engine.definitions.text import write

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(definition=st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_what_is_written_is_read_as_the_same(form, definition):
    assert read(write(definition, form), form) == definition


@pytest.mark.parametrize("text", ["0o17", "1e5", "on", "no", "12:30", "2020-01-01", "~", "<<", ""])
def test_a_text_stays_a_text_whichever_yaml_reads_it(text):
    written = write({text: text}, "yaml")

    assert read(written, "yaml") == {text: text}


def test_what_something_is_called_stands_first():
    steps = [{"actor": "clerk", "expectation": "pay", "id": "pay"}]

    lines = write({"debounce_s": 3, "name": "review", "steps": steps}, "yaml").splitlines()

    assert lines == [
        "name: review",
        "debounce_s: 3",
        "steps:",
        "- id: pay",
        "  actor: clerk",
        "  expectation: pay",
    ]
