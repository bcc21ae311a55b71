"""The file of a user, `mine.py`, with one mistake in it; and what is said of it, line by line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import pytest
import structlog

from engine.app.app import App
from engine.functions.names import unknown_names
from engine.functions.source import unreplayable
from tests.mistakes.mistake import Mistake
from vigil.serving import app

BEGIN: Final = """\
import asyncio
import json
import random
import time
import uuid
from datetime import datetime
from pathlib import Path

import httpx

from vigil import *
from vigil.adapters import Webhook

@tool
def add(x: int) -> int:
    return x

@tool
async def breaks():
    raise ValueError("the disk is on fire")

kept = []
a = Actor("a", tools=[add, breaks])
"""

FUNCTION: Final = "@a.expectation(on=manual())\nasync def e(ctx, trigger):\n"

END: Final = """
app = App(actors=[a], outputs={"hook": Webhook("http://127.0.0.1:1/")})
"""

WHOLE: Final = ("@", "class ", "a.", "Actor(")
"""How what is done begins if it is more than the body of a function."""

_plain: Final = structlog.dev.ConsoleRenderer(colors=False)


def text_of(done: str) -> str:
    """Return the whole file in which `done` is done: declarations, or the body of a function."""
    is_whole = done.startswith(WHOLE)
    return BEGIN + (done if is_whole else FUNCTION + indent(done, "    ")) + "\n" + END


def id_of(mistake: Mistake) -> str:
    """Return what the test of a mistake is called."""
    return f"{mistake.number}, {mistake.made}"


def load(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    """Return the app in the file `text`; it is forgotten when the test ends."""
    (folder / "mine.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "mine", sys)  # So that the end of the test takes it away.
    del sys.modules["mine"]
    return app.load("mine:app", option="")


def found_in(app_: App) -> list[str]:
    """Return what `vigil check` finds, each as one line."""
    problems = [*unreplayable(app_), *unknown_names(app_)]
    return [f"{each.place} {each.found} → {in_our_words(each.instead)}" for each in problems]


def as_lines(logged: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return log lines as the terminal of a node shows them."""
    shown = [str(_plain(None, "info", dict(each))) for each in logged]
    assert not [each for each in shown if "\n" in each]
    return [in_our_words(" ".join(each.split())) for each in shown]


def in_our_words(said: str) -> str:
    """Return a message as Python 3.11 has it: newer ones suggest a name themselves."""
    said = said.replace(". Did you mean '", "; did you mean ").replace("'?", "?")
    return said.replace("keyword-only argument", "argument")
