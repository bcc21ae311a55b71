"""`tests/timeouts.py`: a test that is over time fails, whatever catches its alarm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CATCHES = """
import time

def test_waits():
    try:
        time.sleep({sleeps_s})
    except BaseException:
        pass
"""


@pytest.mark.parametrize(("sleeps_s", "ends"), [(0.0, "1 passed"), (60.0, "1 failed")])
def test_a_test_that_catches_its_alarm_fails(tmp_path, sleeps_s, ends):
    file = tmp_path / "test_one.py"
    file.write_text(CATCHES.format(sleeps_s=sleeps_s))
    options = ["-p", "tests.timeouts", "--rootdir", tmp_path, "--timeout", "1"]
    command = [sys.executable, "-m", "pytest", *options, file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ends in done.stdout
