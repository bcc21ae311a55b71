"""Programs that run beside a node or a demo."""

from __future__ import annotations

import tomllib
from importlib.util import find_spec

import pytest

from tests.vigil.program import ROOT
from vigil.serving import beside
from vigil.settings import read


@pytest.mark.parametrize("missing", beside.CONSOLE_NEEDS)
def test_without_what_the_console_needs_one_line_says_what_to_install(
    missing, tmp_path, monkeypatch, capsys
):
    def found(name: str) -> object:
        return None if name == missing else find_spec(name)

    monkeypatch.setattr(beside, "find_spec", found)

    with beside.console(read({}), tmp_path) as is_told:
        assert is_told.is_set()

    says = f"no console: {missing} is missing; pip install 'vigil-engine[web]'\n"
    assert capsys.readouterr().out == says
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("extra", ["embedded", "web"])
def test_the_demo_brings_its_servers_and_its_console(extra):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]

    assert set(extras[extra]) <= set(extras["demo"])
