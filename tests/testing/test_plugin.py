"""What the plugin adds to pytest, in a project that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.vigil.program import ROOT

TEST = """
import pytest
from tests.engine.stage import HAPPENED
from tests.testing.apps import KEY, app_with, finds
from vigil.testing import run

pytestmark = pytest.mark.vigil


@pytest.fixture
def name():
    return HAPPENED


async def test_it(name):
    async with run(app_with(finds())) as vigil:
        await vigil.publish(name)
        await vigil.run_until_idle()
        assert vigil.finding(KEY).severity == "SEVERITY"


def test_nothing():
    assert "SEVERITY" == "high"
"""


def outcome_of(folder, text):
    (folder / "test_user.py").write_text(text)
    options = ["-p", "vigil.testing.plugin", "-p", "no:asyncio", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "--strict-markers", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def test_an_async_test_with_the_mark_needs_no_other_plugin(tmp_path):
    assert "2 passed" in outcome_of(tmp_path, TEST.replace("SEVERITY", "high"))


def test_a_test_that_fails_shows_what_its_app_did_and_no_others(tmp_path):
    said = outcome_of(tmp_path, TEST.replace("SEVERITY", "low"))

    assert "2 failed" in said
    assert said.count("vigil.testing.run 1") == 1
    assert "finding disk:web-1 is active, high" in said
