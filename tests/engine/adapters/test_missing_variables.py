"""The variables of `env` that a node lacks are found in its adapters, however deep."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from engine.adapters.secret import VALUES_MAX, env, missing_variables


class Remote(Mapping):
    """Asks for each of its values elsewhere."""

    def __getitem__(self, key):
        raise AssertionError("nothing is asked for at the start of a node")

    def __iter__(self):
        raise AssertionError("nothing is asked for at the start of a node")

    def __len__(self):
        return 1


@pytest.mark.parametrize(
    "value",
    [env("UNSET"), {"a": env("UNSET")}, [env("UNSET")], ("a", {"b": [env("UNSET")]})],
    ids=["itself", "in a dictionary", "in a list", "deeper"],
)
def test_a_variable_is_found_in_what_contains_it(value):
    assert missing_variables(SimpleNamespace(secret=value)) == ["UNSET"]


def test_a_variable_that_is_set_is_not_missing(monkeypatch):
    monkeypatch.setenv("SOME_SECRET", "x")
    assert missing_variables(SimpleNamespace(secret=env("SOME_SECRET"))) == []


def test_what_contains_itself_is_looked_into_all_the_same():
    endless = {}
    endless.update(itself=endless, more=[endless], secret=env("UNSET"))
    assert missing_variables(SimpleNamespace(options=endless)) == ["UNSET"]


def test_no_other_container_of_the_users_is_asked_for_what_it_contains():
    adapter = SimpleNamespace(remote=Remote(), secret=env("UNSET"))
    assert missing_variables(adapter) == ["UNSET"]


def test_only_so_many_values_are_looked_at():
    many = [*["x"] * VALUES_MAX, env("UNSET")]
    assert missing_variables(SimpleNamespace(many=many)) == []
