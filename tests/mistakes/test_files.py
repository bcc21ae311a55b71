"""Mistakes in a file of definitions."""

from __future__ import annotations

import pytest

from engine.definitions import to_actor
from engine.definitions.agent import agent_of
from engine.definitions.text import read
from tests.mistakes.mistake import Mistake
from tests.vigil.program import NOWHERE, Vigil
from tests.vigil.test_command_line import one_line
from vigil import App, BadDefinition, ConvergeResult, Strategy


class Look(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx): ...

    def converge(self, state, ctx):
        return ConvergeResult()


def written(field: str = "", on: str = "{event: host.seen}", ref: str = "parts:Look") -> str:
    """Return a file with one field more, or with another value of one."""
    return f"""
id: disk_watch
expectations:
  disk_has_room:
    on: {on}
    strategy: {{ref: {ref}}}
    {field}
"""


FILES = [
    Mistake(
        103,
        "a field is misspelt",
        written("subjectkey: host"),
        "expectations.disk_has_room.subjectkey: there is no such field; did you mean subject_key?",
        "command",
    ),
    Mistake(
        103,
        "a duration is in words",
        written(on="{every: 15 minutes}"),
        "on.0: interval: '15 minutes' is not a duration; write 90, '15m' or '1h30m'",
        "command",
    ),
    Mistake(
        103,
        "a number is in words",
        written("cooldown_s: soon"),
        "expectations.disk_has_room.cooldown_s: write a whole number, not 'soon'",
        "command",
    ),
    Mistake(
        103,
        "it is not YAML",
        "id: [a",
        "disks.yaml: not YAML: line 1: expected ',' or ']'",
        "command",
    ),
    Mistake(
        103,
        "there is no such file",
        "",
        "vigil: disks.yaml: No such file or directory",
        "command",
    ),
]

UNKNOWN_REF = Mistake(
    103,
    "a strategy that the app does not have",
    written(ref="parts:Lok"),
    "expectations.disk_has_room.strategy.ref: there is no 'parts:Lok'; App(strategies=…) has"
    " parts:Look",
    "run",
)

MISTAKES = [*FILES, UNKNOWN_REF]


@pytest.mark.parametrize("mistake", FILES, ids=lambda each: each.made)
def test_a_file_that_cannot_be_read_is_told_with_the_field(tmp_path, mistake):
    if mistake.done:
        (tmp_path / "disks.yaml").write_text(mistake.done)
    done = Vigil(tmp_path).run("apply", "disks.yaml", **NOWHERE)
    assert mistake.said in one_line(done, code=2 if mistake.done else 1)


def test_a_strategy_that_the_app_does_not_have_is_told_with_those_it_has():
    data = read(UNKNOWN_REF.done, "yaml")
    with pytest.raises(BadDefinition) as refused:
        to_actor(agent_of(data), App(strategies={"parts:Look": Look}))
    assert str(refused.value) == UNKNOWN_REF.said
