"""What people see in a terminal is what is kept in files, for them to read before a change."""

from __future__ import annotations

import re

import pytest

from tests.docs.facts import commands
from tests.vigil.screens.screens import SCREENS, WIDTHS, file_of, screens

WITHOUT_SCREEN = {
    "does something, and says so in a line": (
        "fire", "apply", "actors apply", "actors disable", "actors pause",
        "actors resume", "actors reset", "episodes fork", "episodes cancel", "episodes settle",
        "episodes approve", "episodes deny", "episodes resolve", "findings clear", "findings ack",
        "findings note", "outputs approve", "outputs reject", "outputs retry", "outputs cancel",
        "workflows start", "workflows resume", "workflows cancel", "workflows approve",
        "workflows deny", "workflows apply", "workflows disable", "dead requeue", "dead discard",
        "repartition", "uncompress", "users add", "users role", "users groups", "users password",
        "users remove", "users sign-out", "users require-login", "tokens issue", "tokens revoke",
        "login", "logout", "whoami", "retention hold add", "retention hold remove",
        "archive restore", "backup create", "backup verify", "backup restore", "encrypt", "erase",
    ),
    "runs until it is stopped, and logs": (
        "demo", "up", "node", "project", "console", "mcp serve", "projections run",
    ),
    "prints a text as it is kept": (
        "episodes log", "episodes tail", "episodes result", "episodes prompt", "actors definition",
        "workflows definition", "archive cat", "export",
    ),
    "is the same as of the other kind": ("workflows history", "archive verify"),
}  # fmt: skip
"""Why a command has no screen → which."""


@pytest.mark.parametrize("width", WIDTHS)
def test_every_list_and_show_command_looks_as_it_is_kept(width):
    kept = file_of(width).read_text(encoding="utf-8")
    assert screens(width) == kept, "look at it, then: python -m tests.vigil.screens"


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal_but_for_what_people_copy(width):
    narrow = re.sub(r"(?s)\$ vigil [^\n]*--wide\n.*?\n\n", "", screens(width))
    assert [
        line
        for line in narrow.splitlines()
        if len(line) > width and not re.search(r"vigil |McpTool\(", line)
    ] == []


def test_every_other_command_has_a_screen():
    typed = {name.removeprefix("vigil ") for name, _ in commands()}
    screened = {name for name in typed for each in SCREENS if f"{each} ".startswith(f"{name} ")}
    without = {name for names in WITHOUT_SCREEN.values() for name in names}
    assert screened | without == typed
    assert screened & without == set()
