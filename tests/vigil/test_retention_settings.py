"""How long things are kept, as `[retention]` of `vigil.toml` says."""

from __future__ import annotations

import pytest

from streams.model.retention import Retention
from vigil import settings
from vigil.asking.connect import link_settings
from vigil.errors import Mistake
from vigil.settings import FILE, retention_in

DAY_S = 86_400


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / FILE).write_text(text, encoding="utf-8")
        return tmp_path / FILE

    return write


def test_a_file_without_the_table_says_nothing(written):
    assert retention_in(written('stack = "shop"')) is None
    assert retention_in(written("").with_name("other.toml")) is None


def test_an_empty_table_keeps_everything_for_ever(written):
    assert retention_in(written("[retention]")) == Retention()


def test_times_are_those_of_the_table(written):
    found = retention_in(written('[retention]\ndone = "30d"\nfindings = 86400'))
    assert found == Retention(done="30d", findings=DAY_S)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[retention]\ndome = "30d"', "there is no 'dome'; did you mean done"),
        ('[retention]\ndone = "soon"', "retention: done='soon' is not a duration"),
        ('[retention]\njournal = "1d"', "could open its episode again"),
        ('retention = "30d"', "write it as a table"),
    ],
)
def test_what_cannot_be_kept_so_is_told_with_its_place(written, text, problem):
    with pytest.raises(Mistake, match=problem):
        retention_in(written(text))


@pytest.mark.parametrize(
    ("text", "kept_s"), [("", 7 * DAY_S), ('[retention]\nevents = "3d"', 3 * DAY_S)]
)
def test_events_of_a_new_stack_are_kept_for_as_long_as_it_says(written, text, kept_s):
    written(text)
    assert link_settings(settings.read({})).events_max_age_s == kept_s
