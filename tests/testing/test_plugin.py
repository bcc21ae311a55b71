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


SERVERS = """
import asyncio
import pytest
from vigil import Actor, App, manual, propose_output
from vigil.ports import Node, connect, fire
from vigil.queries import connect as ask

pytestmark = pytest.mark.vigil
desk = Actor("desk")


@desk.expectation(on=manual())
async def page(ctx, trigger):
    return propose_output("pager", {"to": "ann"})


@pytest.mark.parametrize("number", [1, 2])
async def test_a_node_on_a_real_server(vigil_nats, vigil_stack, number):
    delivered = asyncio.Queue()
    app = App(actors=[desk], outputs={"pager": pager_of(delivered)})
    async with connect(vigil_nats, stack=vigil_stack) as ports:
        node = Node(app, ports, name="n1")
        running = asyncio.create_task(node.run())
        await fire(ports, "desk", "page", by="test")
        assert (await asyncio.wait_for(delivered.get(), 30)).payload == {"to": "ann"}
        node.stop()
        await running
    assert delivered.empty()


def pager_of(delivered):
    async def pager(output):
        await delivered.put(output)

    return pager


async def test_a_real_postgres(vigil_postgres):
    async with await ask(vigil_postgres) as pool:
        assert await pool.fetchval("SELECT 1") == 1
"""


def test_tests_that_want_real_servers_get_them(tmp_path):
    assert "3 passed" in outcome_of(tmp_path, SERVERS)


OF_ANOTHER_PLUGIN = """
import asyncio
import types
import pytest
from vigil.testing import run


@pytest.mark.xfail(strict=True)
async def test_it():
    pass


MADE = test_it.__code__.replace(co_filename="<made>")
test_of_no_module = types.FunctionType(MADE, {"__name__": "nowhere"}, "test_of_no_module")
"""

OTHER_PLUGIN = """
import asyncio
import inspect
import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if pyfuncitem.name == "test_it":
        asyncio.run(pyfuncitem.obj())
        return True
"""


def test_a_test_that_another_plugin_runs_may_pass_where_it_is_to_fail(tmp_path):
    (tmp_path / "conftest.py").write_text(OTHER_PLUGIN)
    said = outcome_of(tmp_path, OF_ANOTHER_PLUGIN)

    assert "INTERNALERROR" not in said
    assert "[XPASS(strict)]" in said
    assert "2 failed" in said
    assert "without the mark" not in said
