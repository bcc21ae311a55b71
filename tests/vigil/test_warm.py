"""A warm command is a command: a process with a folder, settings and an end of its own."""

from __future__ import annotations

import subprocess

import pytest

from tests.vigil.program import NOWHERE, Vigil
from tests.vigil.warm import run_warm


def test_it_says_and_ends_as_the_one_that_is_typed(tmp_path):
    for command in (("--version",), ("fire", "--in", "never", "x", "y"), ("sql", "select 1")):
        typed = Vigil(tmp_path, is_cold=True, **NOWHERE).run(*command)
        warm = Vigil(tmp_path, **NOWHERE).run(*command)

        outcome = (warm.returncode, warm.stdout, warm.stderr)
        assert outcome == (typed.returncode, typed.stdout, typed.stderr)


def test_one_that_does_not_end_is_ended(vigil):
    with pytest.raises(subprocess.TimeoutExpired):
        run_warm(["demo"], folder=vigil.folder, environ=vigil.environ, stdin=b"", most_s=0.2)
