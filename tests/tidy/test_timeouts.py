"""`tests/timeouts.py`: a test that is over time fails, whatever catches its alarm."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent

import pytest

ROOT = Path(__file__).parents[2]

STOOD_STILL_S = 3.0
"""How long a process stands still, in seconds: longer than its test may take."""

TESTS = {
    "is in time": ("pass", "1 passed"),
    "catches its alarm": (
        """
        try:
            time.sleep(60)
        except BaseException:
            pass
        """,
        "1 failed",
    ),
    "catches it and goes on": (
        """
        for _ in range(3):
            try:
                time.sleep(60)
            except BaseException:
                pass
        """,
        "1 failed",
    ),
}


def run(folder: Path, body: str, meanwhile: Callable[[subprocess.Popen[str]], None]) -> str:
    """Run a test that may take a second, and return what pytest says of it."""
    file = folder / "test_one.py"
    file.write_text("import time\n\ndef test():\n" + indent(dedent(body).strip(), "    ") + "\n")
    options = ["-p", "tests.timeouts", "--rootdir", str(folder), "--timeout", "1"]
    command = [sys.executable, "-m", "pytest", *options, str(file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as begun:
        meanwhile(begun)
        return begun.communicate()[0]


@pytest.mark.parametrize("case", TESTS)
def test_a_test_that_is_over_time_fails_also_if_it_catches_its_alarm(tmp_path, case):
    body, ends = TESTS[case]
    assert ends in run(tmp_path, body, lambda begun: None)


def test_a_process_that_stood_still_as_a_whole_was_not_over_time(tmp_path):
    def stand_still(begun: subprocess.Popen[str]) -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        begun.send_signal(signal.SIGSTOP)
        time.sleep(STOOD_STILL_S)
        begun.send_signal(signal.SIGCONT)

    body = f"""
    open({str(tmp_path / "begun")!r}, "w").close()
    time.sleep(0.3)
    """
    assert "1 passed" in run(tmp_path, body, stand_still)
