"""What people see in a terminal is what is kept in files, for them to read before a change."""

from __future__ import annotations

import re

import pytest

from tests.vigil.screens.screens import SCREENS, WIDTHS, file_of, screens
from vigil.commands import whole

LISTS = {"list", "show", "steps", "chain", "why", "definitions"}

UNSEEN = {"events why"}
"""Prints what only a running stack has."""


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
        if len(line) > width
        and not re.search(r"vigil |^(approval|wait|parked episode|failed step|dead letter) ", line)
    ] == []


def test_every_list_and_show_command_has_a_screen():
    typed = {
        f"{group.name} {name}"
        for group in whole().registered_groups
        for command in group.typer_instance.registered_commands
        if (name := command.name or command.callback.__name__) in LISTS
    }
    seen = {" ".join(each.split()[:2]) for each in SCREENS}
    assert typed - seen - UNSEEN == set()
