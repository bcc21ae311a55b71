"""Mistakes in what an app declares: each is told as it is imported, in one line, with its place."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.mistakes.mine import found_in, id_of, in_our_words, load, text_of
from tests.mistakes.mistake import Mistake
from vigil import errors

E = "\nasync def e(ctx, trigger): ..."

MISTAKES: list[Mistake] = [
    Mistake(
        10,
        "a plain function as an expectation",
        "@a.expectation(on=manual())\ndef e(ctx, trigger): ...",
        "actor 'a', expectation 'e': strategy: e is not `async def name(ctx, trigger)`; make it"
        " async",
        "python",
    ),
    Mistake(
        11,
        "a function that takes no trigger",
        "@a.expectation(on=manual())\nasync def e(ctx): ...",
        "actor 'a', expectation 'e': strategy: e(ctx) must take (ctx, trigger)",
        "python",
    ),
    Mistake(
        12,
        "yield in a function",
        "@a.expectation(on=manual())\nasync def e(ctx, trigger): yield",
        "actor 'a', expectation 'e': strategy: it has `yield`; return all that it finds, in a list",
        "python",
    ),
    Mistake(
        13,
        "on= left out",
        f"@a.expectation(){E}",
        "actor 'a': on: missing; say what fires it, such as on=event('order.placed')",
        "python",
    ),
    Mistake(
        13,
        "a trigger without on=",
        f"@a.expectation(event('x.y')){E}",
        "has no name; write `on=…`",
        "python",
    ),
    Mistake(
        14,
        "a decorator without parentheses",
        f"@a.expectation{E}",
        "actor 'a', expectation 'e': on: missing; write @actor.expectation(on=…) above the"
        " function",
        "python",
    ),
    Mistake(
        15,
        "an option that there is not",
        f"@a.expectation(on=manual(), subjectkey='x'){E}",
        "actor 'a': subjectkey: there is no such option; did you mean subject_key?",
        "python",
    ),
    Mistake(
        15,
        "an argument of an actor that there is not",
        "Actor('b', spec_version='2')",
        "argument 'spec_version'; did you mean spec_rev?",
        "python",
    ),
    Mistake(
        15,
        "an argument of an actor without its name",
        "Actor('b', 'orders')",
        "takes 2 positional arguments but 3 were given; give them by name",
        "python",
    ),
    Mistake(
        15,
        "a method that there is not",
        "a.expectatoin",
        "'Actor' object has no attribute 'expectatoin'; did you mean expectation?",
        "python",
    ),
    Mistake(
        16,
        "a limit that there is not",
        "a.budget = Budget(turn=5)",
        "TypeError: Unexpected keyword argument 'turn'; did you mean turns?",
        "python",
    ),
    Mistake(
        16,
        "an argument of retries that there is not",
        "a.retries = Retries(wait=3)",
        "keyword argument 'wait'; known: attempts_max, first_s, most_s",
        "python",
    ),
    Mistake(
        17,
        "a text as a trigger",
        f"@a.expectation(on='x.y'){E}",
        "on: 'x.y' is not a trigger; use event('some.name')",
        "python",
    ),
    Mistake(
        18,
        "a wrong name of an event",
        f"@a.expectation(on=event('a..b')){E}",
        "event(): event name: 'a..b' is not a dotted name; use words of A-Z a-z 0-9 _ - joined by"
        " dots",
        "python",
    ),
    Mistake(
        19,
        "a minute that there is not",
        f"@a.expectation(on=cron('61 * * * *')){E}",
        "cron(): expression: '61 * * * *': Bad minute; write minute, hour, day of month, month",
        "python",
    ),
    Mistake(
        19,
        "words as a schedule",
        f"@a.expectation(on=cron('every 5 minutes')){E}",
        "cron(): expression: 'every 5 minutes': 3 fields, not 5; write minute, hour,",
        "python",
    ),
    Mistake(
        20,
        "a time zone that there is not",
        f"@a.expectation(on=cron('0 * * * *', tz='Europe/Berln')){E}",
        "cron(): tz: 'Europe/Berln' is not a time zone; write one such as Europe/Berlin",
        "python",
    ),
    Mistake(
        21,
        "words as a duration",
        f"@a.expectation(on=every('15 minutes')){E}",
        "every(): interval: '15 minutes' is not a duration; write 90, '15m' or '1h30m'",
        "python",
    ),
    Mistake(
        22,
        "a cooldown of a schedule",
        f"@a.expectation(on=every('15m'), cooldown_s=5){E}",
        "cooldown_s: is for events, and none fires it; leave it out",
        "python",
    ),
    Mistake(
        22,
        "a bound of a debounce that is not there",
        f"@a.expectation(on=event('a.b'), max_wait_s=5){E}",
        "max_wait_s: bounds debounce_s, and there is none; set that, or leave it out",
        "python",
    ),
    Mistake(
        23,
        "two expectations of one name",
        f"@a.expectation(on=manual()){E}\n\n@a.expectation(on=manual()){E}",
        "actor 'a', expectation 'e': name: declared twice; give one of them another name",
        "python",
    ),
    Mistake(
        24,
        "an actor whose name has a space",
        "Actor('my actor')",
        "actor 'my actor': id: 'my actor' is not a name; use 1 to 64 of A-Z a-z 0-9 _ -",
        "python",
    ),
    Mistake(
        25,
        "a tool with *args",
        "@tool\ndef t(*args): ...",
        "parameter args: arguments are given by name; name each of them",
        "python",
    ),
    Mistake(
        25,
        "a number as retries",
        "@tool(retries=3)\ndef t(): ...",
        "retries: 3 is not Retries(attempts_max=…)",
        "python",
    ),
    Mistake(
        25,
        "retries of a side effect",
        "@tool(retries=Retries(), side_effect=True)\ndef t(): ...",
        "retries: a side effect is repeated only with idempotent=True",
        "python",
    ),
    Mistake(
        26,
        "class_ forgotten",
        "return raise_finding('k', severity='high')",
        "raise_finding(…) → missing a required argument: 'class_'",
        "check",
    ),
    Mistake(
        26,
        "an argument of a finding that there is not",
        "a.finding = raise_finding('k', class_='c', severty='high')",
        "did you mean severity?",
        "python",
    ),
    Mistake(
        27,
        "a class that is no strategy",
        "a.expect('e', Budget, on=manual())",
        "actor 'a', expectation 'e': strategy: Budget is not a Strategy; give a subclass of"
        " Strategy, or `async def name(ctx, trigger)`",
        "python",
    ),
    Mistake(
        27,
        "a number as a strategy",
        "a.expect('e', 5, on=manual())",
        "strategy: 5 is not a Strategy; give a subclass of Strategy",
        "python",
    ),
    Mistake(
        28,
        "a severity that there is not",
        "return raise_finding('k', class_='c', severity='hihg')",
        "severity 'hihg' → one of low, medium, high, critical",
        "check",
    ),
]

SAYS_NOTHING_MORE = {  # what Python says of what is not ours
    "a.x = (lambda: 1)(x=2)": "got an unexpected keyword argument 'x'",
    "a.x = int('one')": "ValueError: invalid literal for int() with base 10: 'one'",
}

FITS = """\
given = {"class_": "c", "severity": "high"}
await ctx.call(add, x=1)
await ctx.wait("r", expires_s=3)
names = ["k"]
return [raise_finding(*names, **given), dict(x=1), trigger.payload.get("y")]
"""


def at(where: str) -> list[Mistake]:
    """Return those that are told there."""
    return [each for each in MISTAKES if each.where == where]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Load an app of a user."""
    return lambda done: load(text_of(done), tmp_path, monkeypatch)


@pytest.mark.parametrize("mistake", at("python"), ids=id_of)
def test_a_mistake_in_a_declaration_is_told_with_its_line(mine, mistake):
    with pytest.raises(errors.Mistake) as caught:
        mine(mistake.done)
    said = in_our_words(str(caught.value))
    assert re.match(r"mine:app: mine\.py:[0-9]+: ", said)
    assert in_our_words(mistake.said) in said
    assert "\n" not in said
    assert "Options.__init__" not in said


@pytest.mark.parametrize("done", SAYS_NOTHING_MORE)
def test_what_is_not_ours_is_told_as_python_has_it(mine, done):
    with pytest.raises(errors.Mistake, match=r"^mine:app: mine\.py:[0-9]+: ") as caught:
        mine(done)
    assert str(caught.value).endswith(SAYS_NOTHING_MORE[done])


@pytest.mark.parametrize("mistake", at("check"), ids=id_of)
def test_a_mistake_in_a_finding_is_found_before_it_runs(mine, mistake):
    assert [each for each in found_in(mine(mistake.done)) if mistake.said in each]


def test_calls_that_may_fit_are_no_mistakes(mine):
    assert found_in(mine(FITS)) == []


def test_without_a_command_the_traceback_ends_with_the_line_and_what_is_wrong_there(tmp_path):
    (tmp_path / "mine.py").write_text("from vigil import *\n\nActor('my actor')\n")
    program = [sys.executable, "mine.py"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "mine.py:3: actor 'my actor': id: 'my actor' is not a name; use 1 to 64 of A-Z a-z 0-9 _ -"
    )
