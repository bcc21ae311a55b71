"""Mistakes in what is typed: names, options, and decisions.

Those that need a stack are made in `tests/vigil`, with the words here.
"""

from __future__ import annotations

import pytest

from tests.mistakes.mistake import Mistake
from tests.vigil.program import NOWHERE, Vigil
from tests.vigil.test_command_line import one_line

UNHEARD = Mistake(
    68,
    "the event has a name that nobody listens to",
    'vigil publish host.sen {"host":"web-1"}',
    "warning: no node that is up listens to 'host.sen'; did you mean host.seen?",
    "command",
)

NOT_AN_APPROVER = Mistake(
    77,
    "an approval by somebody who may not decide, or without a name",
    "vigil episodes deny ID --yes --by eve",
    "'eve' is none of those who may decide: ann, bob; give your name with --by",
    "command",
)

NO_TERMINAL = Mistake(
    78,
    "a decision where nobody can be asked to confirm it",
    "vigil episodes approve ID",
    "vigil: there is no terminal to confirm on; give --hash 01234567, or --yes",
    "command",
)

DECIDED = Mistake(
    79,
    "a second decision",
    "vigil episodes approve ID --yes",
    "does not wait any more: denied by bob at 20",
    "command",
)

DENIED = Mistake(
    80,
    "a denial, which the function is told",
    "vigil episodes deny ID --yes --by bob --reason no",
    "by bob: no",
    "run",
)

UNKNOWN_NAMES = [
    Mistake(
        81,
        "an actor that there is not",
        "vigil actors why watchr disk",
        "nobody knows an actor 'watchr'; did you mean watcher?",
        "command",
    ),
    Mistake(
        81,
        "an expectation that there is not",
        "vigil actors why watcher dsk",
        "actor 'watcher' has no expectation 'dsk'; did you mean disk?",
        "command",
    ),
]

NO_ID = Mistake(
    81,
    "an episode's id that is none",
    "vigil episodes show x7",
    "'x7' is no episode id, such as 00000000-0000-0000-0000-000000000000",
    "command",
)

WRONG_WORDS = [
    Mistake(
        82,
        "a command that there is not",
        "findngs",
        "No such command 'findngs'. Did you mean 'findings'? `vigil --help` says more.",
        "command",
    ),
    Mistake(
        82,
        "a command of a group that there is not",
        "episodes lst",
        "Did you mean 'list'? `vigil episodes --help` says more.",
        "command",
    ),
    Mistake(
        82,
        "an option that there is not",
        "episodes list --limt 1",
        "No such option: --limt",
        "command",
    ),
    Mistake(
        82,
        "a status that there is not",
        "findings list --status clear",
        "'--status': 'clear' is not one of 'active', 'cleared'",
        "command",
    ),
    Mistake(
        82,
        "a mode that there is not",
        "mode n1 fulll",
        "'fulll' is no mode; use full, trigger_only, disabled",
        "command",
    ),
    Mistake(
        82,
        "an argument is left out",
        "publish",
        "Missing argument 'NAME'. `vigil publish --help` says more.",
        "command",
    ),
    Mistake(
        82,
        "an argument too many",
        "publish a {} b",
        "Got unexpected extra argument(s) (b). `vigil publish --help`",
        "command",
    ),
]

VARIABLE = Mistake(
    88,
    "a variable that is nearly a setting",
    "VIGIL_NATS_ULR",
    "vigil: warning: VIGIL_NATS_ULR is no setting, and is ignored; did you mean VIGIL_NATS_URL?",
    "command",
)

MISTAKES = [
    *(UNHEARD, NOT_AN_APPROVER, NO_TERMINAL, DECIDED, DENIED),
    *(*UNKNOWN_NAMES, NO_ID, *WRONG_WORDS, VARIABLE),
]


@pytest.fixture
def vigil(tmp_path):
    """The command, in an empty folder, with no server to talk to."""
    return Vigil(tmp_path, **NOWHERE)


@pytest.mark.parametrize("mistake", WRONG_WORDS, ids=lambda each: each.made)
def test_a_wrong_word_is_one_line_that_says_where_to_look(vigil, mistake):
    assert mistake.said in one_line(vigil.run(*mistake.done.split()), code=2)


def test_an_episode_id_must_be_one(vigil):
    assert NO_ID.said in one_line(vigil.run(*NO_ID.done.split()[1:]), code=2)


def test_a_variable_that_is_nearly_a_setting_is_told_and_others_are_not(vigil):
    others = {"VIGIL_NATS_URL_FILE": "/x", "VIGIL_MODEL": "m", "VIGIL_SHIP": "y"}
    said = vigil.run("publish", "x", "{", **{VARIABLE.done: "nats://h"}, **others).stderr
    assert said.splitlines()[0] == VARIABLE.said
    assert said.count("\n") == 2
