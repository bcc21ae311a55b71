"""Mistakes in an app of one's own, and what is said of them: each in one line, with what to do."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

from engine.functions.names import unknown_names
from engine.functions.source import unreplayable
from vigil.errors import Mistake
from vigil.serving import app

BEGIN = """
import time
from pathlib import Path
from vigil import *

@tool
def add(x: int) -> int:
    return x

a = Actor("a", tools=[add])
"""

END = """
app = App(actors=[a])
"""

DECLARED = {  # what is written: what is said
    "@a.expectation\nasync def e(ctx, trigger): ...": (
        "mine.py:12: actor 'a', expectation 'e': on: missing; write @actor.expectation(on=…) above"
        " the function"
    ),
    "@a.expectation()\nasync def e(ctx, trigger): ...": (
        "mine.py:12: actor 'a': on: missing; say what fires it, such as on=event('order.placed')"
    ),
    "@a.expectation(event('x.y'))\nasync def e(ctx, trigger): ...": "has no name; write `on=…`",
    "@a.expectation(on=manual(), subjectkey='x')\nasync def e(ctx, trigger): ...": (
        "mine.py:12: actor 'a': subjectkey: there is no such option; did you mean subject_key?"
    ),
    "@a.expectation(on=manual())\nasync def e(ctx, trigger): yield": (
        "mine.py:12: actor 'a', expectation 'e': strategy: it has `yield`; return all that it"
        " finds, in a list"
    ),
    "a.expect('e', Budget, on=manual())": (
        "mine.py:12: actor 'a', expectation 'e': strategy: Budget is not a Strategy; give a"
        " subclass of Strategy, or `async def name(ctx, trigger)`"
    ),
    "a.expect('e', 5, on=manual())": "strategy: 5 is not a Strategy; give a subclass",
    "Budget(turn=5)": (
        "mine.py:12: TypeError: Unexpected keyword argument 'turn'; did you mean turns?"
    ),
    "Actor('b', spec_version='2')": "argument 'spec_version'; did you mean spec_rev?",
    "raise_finding(\n    'k',\n    class_='c',\n    severty='high')": "did you mean severity?",
    "Retries(wait=3)": "keyword argument 'wait'; known: attempts_max, first_s, most_s",
    "Actor('b', 'orders')": "takes 2 positional arguments but 3 were given; give them by name",
    "a.expectatoin": "'Actor' object has no attribute 'expectatoin'; did you mean expectation?",
    "(lambda: 1)(x=2)": "got an unexpected keyword argument 'x'",
    "int('one')": "mine.py:12: ValueError: invalid literal for int() with base 10: 'one'",
}

CHECKED = {  # the body of a function: what is found, and what to write instead
    "Path('/etc/x').read_text()": ("….read_text()", "await ctx.call(…) of a tool"),
    "open('/etc/x')": ("io.open()", "await ctx.call(…) of a tool"),
    "ctx.raise_finding('k')": (
        "ctx.raise_finding",
        "await ctx.report(raise_finding(…)), or return raise_finding(…)",
    ),
    "ctx.aproval({})": ("ctx.aproval", "did you mean approval?"),
    "await ctx.wait('r', expires=3)": (
        "ctx.wait(…)",
        "there is no argument 'expires'; did you mean expires_s?",
    ),
    "await ctx.wait()": ("ctx.wait(…)", "missing a required argument: 'ref'"),
    "await ctx.sleep(1, 2)": ("ctx.sleep(…)", "too many positional arguments"),
    "return raise_finding('k', severity='high')": (
        "raise_finding(…)",
        "missing a required argument: 'class_'",
    ),
}


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Write the app of a user, and load it."""

    def load(text: str):
        (tmp_path / "mine.py").write_text(BEGIN + text + "\n" + END)
        return app.load("mine:app", option="")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield load
    sys.modules.pop("mine", None)


def in_our_words(said: str) -> str:
    """Return a message as Python 3.11 has it: newer ones suggest a name themselves."""
    said = said.replace(". Did you mean '", "; did you mean ").replace("'?", "?")
    return said.replace("keyword-only argument", "argument")


@pytest.mark.parametrize("written", DECLARED)
def test_a_mistake_in_a_declaration_is_told_with_its_line(mine, written):
    with pytest.raises(Mistake) as caught:
        mine("\n" + written)
    assert in_our_words(DECLARED[written]) in in_our_words(str(caught.value))
    assert "\n" not in str(caught.value)
    assert "Options.__init__" not in str(caught.value)


@pytest.mark.parametrize("body", CHECKED)
def test_a_mistake_in_a_function_is_found_before_it_runs(mine, body):
    app_ = mine(f"@a.expectation(on=manual())\nasync def e(ctx, trigger):\n    {body}")
    problems = [*unreplayable(app_), *unknown_names(app_)]
    found = [(each.found, in_our_words(each.instead)) for each in problems]
    assert found == [(CHECKED[body][0], in_our_words(CHECKED[body][1]))]


FINE = dedent("""
    @a.expectation(on=manual())
    async def e(ctx, trigger):
        given = {"class_": "c", "severity": "high"}
        await ctx.call(add, x=1)
        await ctx.wait("r", expires_s=3)
        names = ["k"]
        return [raise_finding(*names, **given), dict(x=1), trigger.payload.get("y")]
""")


def test_calls_that_may_fit_are_no_mistakes(mine):
    app_ = mine(FINE)
    assert [*unreplayable(app_), *unknown_names(app_)] == []


def test_a_file_of_ones_own_that_is_called_as_we_are_is_told(tmp_path, monkeypatch):
    (tmp_path / "vigil.py").write_text("from vigil import App\napp = App()\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Mistake, match=r"vigil\.py hides Vigil's own package 'vigil': rename it"):
        app.load("vigil:app")
