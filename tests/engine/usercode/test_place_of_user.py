"""Which line is told as the user's: that of an app, be it in a folder or installed."""

from __future__ import annotations

import json
import sysconfig

import pytest

from engine.functions.place import place_of_error
from engine.usercode.leavable import place_in

TEXT = """
import asyncio
import json

def check():
    json.loads("{")

async def wait(work=None):
    await (work or asyncio.sleep(0))
"""
IN_FOLDER = "/srv/shop/checks.py"
INSTALLED = f"{sysconfig.get_path('purelib')}/shop/checks.py"
FILES = pytest.mark.parametrize("file", [IN_FOLDER, INSTALLED])


def function_of(file, name):
    """Return a function of the module of an app that is in `file`."""
    names = {}
    exec(compile(TEXT, file, "exec"), names)  # noqa: S102 - as Python imports it
    return names[name]


def place_waited_at(work, **options):
    work.send(None)
    place = place_in(work, **options)
    work.close()
    return place


@FILES
def test_an_error_has_the_line_of_an_app_in_a_folder_or_installed(file):
    with pytest.raises(json.JSONDecodeError) as raised:
        function_of(file, "check")()
    error = raised.value.with_traceback(raised.tb.tb_next)  # Without the line of this test.
    assert place_of_error(error) == "checks.py:6, in check"


@FILES
def test_a_coroutine_waits_at_the_line_of_an_app_in_a_folder_or_installed(file):
    assert place_waited_at(function_of(file, "wait")()) == "checks.py:9, in wait"


def test_the_line_of_a_folder_comes_before_one_of_what_is_installed():
    library = function_of(INSTALLED.replace("checks", "library"), "wait")
    work = function_of(IN_FOLDER, "wait")(library())
    assert place_waited_at(work) == "checks.py:9, in wait"


def test_who_does_not_look_for_installed_apps_is_told_none():
    work = function_of(INSTALLED, "wait")()
    assert place_waited_at(work, but_installed=True) == ""
