"""Lists of a stack that nobody has: a typo is told from a stack where nothing happened yet."""

from __future__ import annotations

import pytest

from vigil.errors import stacks_hint

LISTS = (
    *(("episodes", "list"), ("findings", "list"), ("outputs", "list"), ("workflows", "list")),
    *(("dead", "list"), ("inbox",), ("decisions",)),
)


@pytest.fixture
def projected(standing):
    """The command with rows for its stack, of which there are none."""
    with standing.running("project"):
        counted = "select projection from projection_checkpoints where stack = '{}'"
        name = standing.environ["VIGIL_STACK"]
        standing.wait_for("sql", counted.format(name), until=bool)
    return standing


@pytest.mark.parametrize("words", LISTS)
def test_a_list_of_a_stack_that_was_never_projected_says_which_there_are(projected, words):
    name = projected.environ["VIGIL_STACK"]
    done = projected.run(*words, VIGIL_STACK=f"{name}x")
    unknown = f"nothing has ever been projected for stack '{name}x'; did you mean "
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(unknown)
    assert name in done.stderr
    as_json = projected.run(*words, "--json", VIGIL_STACK="typo")
    assert (as_json.returncode, as_json.stdout.strip()) == (0, "[]")
    assert "projected for stack 'typo'; there are: " in as_json.stderr


def test_an_empty_list_of_a_stack_that_is_projected_says_no_more_than_that(projected):
    done = projected.run("episodes", "list")
    as_json = projected.run("episodes", "list", "--json")
    assert (done.returncode, done.stderr) == (0, "nothing found\n")
    assert (as_json.stdout, as_json.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ([], ""),
        (["a", "b"], "there are: a, b"),
        (["ops", "lab"], "did you mean ops?"),
    ],
)
def test_the_hint_names_what_is_near_or_all_there_is(there, said):
    assert stacks_hint("opps", there) == said
