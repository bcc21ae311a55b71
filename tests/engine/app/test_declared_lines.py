"""The note of a wrong declaration: the line of the user that made it, or none."""

from __future__ import annotations

import asyncio
import inspect
import sysconfig
from functools import partial
from pathlib import Path

import pytest

from engine.errors import DeclarationError
from tests.vigil.program import ROOT

TEXT = """
def calls(what):
    return what()
"""
FOLDERS = ["/srv/shop", f"{sysconfig.get_path('purelib')}/shop"]
THERE = ["checks.py:3: actor 'a': field: wrong"]


def noted(*files):
    """Return the notes of an error that is made by a call through `files`, the first one's call."""
    made = partial(DeclarationError, actor="a", field="field", problem="wrong")
    for file in reversed(files):
        names = {}
        exec(compile(TEXT, str(file), "exec"), names)  # noqa: S102 - as Python imports it
        made = partial(names["calls"], made)
    return getattr(made(), "__notes__", [])


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_line_of_an_app_in_a_folder_or_installed_is_noted(folder):
    assert noted(f"{folder}/checks.py") == THERE


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_an_app_has_python_call_is_declared_at_the_line_of_the_app(folder):
    assert noted(f"{folder}/checks.py", inspect.getfile(inspect)) == THERE


@pytest.mark.parametrize(
    "beyond",
    [Path(asyncio.__file__).parent / "events.py", ROOT / "vigil" / "commands" / "actors.py"],
)
def test_who_runs_a_node_or_a_command_has_declared_nothing(beyond):
    assert noted("/usr/bin/starts", beyond, ROOT / "engine" / "node" / "node.py") == []
