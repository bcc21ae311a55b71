"""What the code can say for itself stands in the documentation as the code says it."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
from collections.abc import Iterator
from types import ModuleType
from typing import Final

import pytest

from engine import errors
from engine.agents.model_errors import CLASSES
from engine.app.dedupe import WINDOWS
from engine.app.tools import ERROR_CLASSES
from engine.app.workflow import APPROVAL_EXPIRED, DENIED
from engine.episodes import events as episode_events
from engine.episodes.overlap.hold import OVERLAP
from engine.episodes.settle import NOT_HAPPENED
from engine.findings import events as finding_events
from engine.triggers import rules
from engine.triggers.evaluate import DEDUPE_FAILED
from engine.waits import answer as answers
from engine.waits import wait as waits
from engine.workflows.instance import NOT_STARTED
from streams.model.outputs import ALL_OUTPUTS_FAILED
from streams.public_events import PUBLIC_EVENTS
from tests.docs import facts
from tests.docs.pages import REFERENCE, pages, rows, section, text_of
from vigil.errors import EXIT_LOST, EXIT_MISTAKE, EXIT_TROUBLE, EXIT_UNCLEAN

TRIGGERS: Final = "docs/guides/triggers.md"
RUNNING: Final = "docs/guides/running.md"
PUBLISHING: Final = "docs/guides/publishing.md"

PARTS: Final = [(page, name) for page in pages() for name, _ in facts.marked(page)]


@pytest.mark.parametrize(("page", "name"), PARTS)
def test_a_part_is_as_the_code_says(page: str, name: str):
    written = dict(facts.marked(page))[name]

    assert written == facts.FACTS[name](), "write it anew: python -m tests.docs.facts"


@pytest.mark.parametrize("name", facts.FACTS)
def test_every_part_stands_somewhere(name: str):
    assert name in {part for _, part in PARTS}


def test_every_table_and_column_of_the_reference_has_words():
    empty = [row for row in rows(section(REFERENCE, "## Tables")) if not all(row)]

    assert not empty


def test_the_guide_to_sql_lists_every_table_and_view():
    listed = {row[0].strip("`") for row in rows(section("docs/guides/sql.md", "## What there is"))}

    assert listed == {name for kind, name, _ in facts.comments() if kind in {"TABLE", "VIEW"}}


def test_the_guide_to_publishing_says_when_each_public_event_is_told():
    told = rows(section(PUBLISHING, "## What the engine publishes"))
    names = [row[0] for row in told]

    assert sorted(names) == sorted([row[0] for row in rows(facts.public_events())] * 2)


def test_every_public_event_is_known_to_who_publishes():
    assert {name for name, _ in facts.published()} == PUBLIC_EVENTS


def test_of_all_that_the_engine_publishes_of_episodes_the_guide_has_one():
    modules = (episode_events, finding_events, waits)
    functions = itertools.chain.from_iterable(map(signatures, modules))
    builder = episode_events.episode_event.__name__  # Makes no event of its own.
    makes = {name for name, made in functions if made == "PublicEvent"} - {builder}
    asked = facts.calls(makes.__contains__, packages=["tests/docs"])

    assert {facts.name_of(call) for _, call in asked} == makes


def signatures(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield what each public function of `module` is called, and says that it returns."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if not name.startswith("_"):
            yield name, function.__annotations__["return"]


COUNTED: Final = ("waits_for_calm", "duplicate", "overflow")
"""What is counted beside the refusals of the gate's own rules."""


def test_the_guide_to_triggers_says_every_reason_of_the_gate_and_no_other():
    listed = [row[0].strip("`") for row in rows(section(TRIGGERS, "## Why an event does not fire"))]

    assert sorted(listed) == sorted([*rules.REASONS, DEDUPE_FAILED, OVERLAP, *COUNTED])


def test_the_guide_to_triggers_has_every_window():
    told = section(TRIGGERS, "## Which events are the same").partition("| window |")[2]
    cells = ", ".join(row[0] for row in rows(f"| window |{told}"))

    assert cells.replace("`", "").split(", ") == list(WINDOWS)


def test_every_span_is_in_the_guide_to_running():
    said = {row[0].strip("`").removesuffix("…").strip() for row in rows(text_of(RUNNING))}

    assert facts.spans() <= said


def test_the_exit_codes_are_the_documented_ones():
    codes = {row[0] for row in rows(section(RUNNING, "## Stopping"))}

    ours = map(str, (EXIT_TROUBLE, EXIT_MISTAKE, EXIT_UNCLEAN, EXIT_LOST))
    assert codes == {"0", *ours, "130, 143"}


def test_every_error_class_is_in_the_reference_and_no_other():
    listed = {row[0].strip("`") for row in rows(section(REFERENCE, "## Error classes"))}

    of_others = {name for _, name in (*ERROR_CLASSES, *CLASSES)}
    known = {*contract_errors(), *of_others, *raised_classes(), *LATER}
    assert listed == known


LATER: Final = (
    DENIED,
    APPROVAL_EXPIRED,
    answers.SUPERSEDED,
    OVERLAP,
    answers.WAIT_EXPIRED,
    ALL_OUTPUTS_FAILED,
    NOT_HAPPENED,
    NOT_STARTED,
)
"""What people, or the lack of them, deliveries and causes make of an episode or instance."""


def contract_errors() -> set[str]:
    """Return the classes of what user code may break or use up."""
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    broken = {each.error_class for each in classes if issubclass(each, errors.StrategyError)}
    return broken | {errors.BudgetExceeded("turns", "").error_class, errors.CALL_TIMEOUT}


def raised_classes() -> Iterator[str]:
    """Yield the error classes that the engine itself gives, wherever they stand."""
    for module, call in facts.calls(lambda name: name in GIVES_CLASS, packages=("engine",)):
        named = [word.value for word in call.keywords if word.arg == "error_class"]
        given = [*call.args[GIVES_CLASS[facts.name_of(call)] :][:1], *named]
        yield from filter(None, (value_in(module, node) for node in given))


GIVES_CLASS: Final = {
    "CallFailed": 0,
    "EpisodeFailed": 0,
    "ToolFailed": 0,
    "_tool_failed": 0,
    "SynthesisFailed": 0,
    "_failed": 1,
    "Takeover": 1,
    "CancelEpisode": 0,
    "CannotStart": 0,
    "_end_child": 1,
}
"""What makes an error class known, and which argument is it."""


def value_in(module: str, node: ast.expr) -> str:
    """Return the text that `node` is in `module`: a literal or a constant's; empty for others."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    constant = isinstance(node, ast.Name) and node.id.isupper()
    return str(getattr(importlib.import_module(module), node.id)) if constant else ""
