"""The parts of the documentation that the code itself can say, written from it.

A page that wants one has `<!-- begin NAME -->` and `<!-- end NAME -->`; what stands between is
ours. To write all of them anew: python -m tests.docs.facts
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from enum import Enum
from itertools import pairwise
from typing import Any, Final, get_args

import typer

from engine.app.actor import Actor, ExpectationOptions
from projections.postgres.queries import migrations
from streams.model.triggers import Trigger
from tests.docs.api import api_operations, api_problems
from tests.docs.client import client_calls
from tests.docs.life import diagram, diagram_of_attempts
from tests.docs.names import public_names
from tests.docs.pages import ROOT, pages, text_of
from tests.docs.publicity import published
from vigil.commands import whole
from vigil.flags import SETTINGS
from vigil.settings import DEFAULTS, PREFIX, TYPES, bounds

PACKAGES: Final = ("streams", "engine", "projections", "vigil")

LIMITS: Final = (
    "streams.ports.domain_events.EVENT_BYTES_MAX",
    "streams.wire.messages.ID_CHARS_MAX",
    "streams.wire.messages.DEPTH_MAX",
    "streams.ports.timers.TIMER_BYTES_MAX",
    "streams.tokens.TOKEN_BYTES_MAX",
    "streams.layout.PARTITIONS_MAX",
    "streams.ports.domain_events.HOPS_MAX",
    "streams.jetstream.ports.configs.DUPLICATES_S",
    "streams.jetstream.ports.configs.MARKER_S",
    "streams.ports.delivery.ACK_WAIT_S",
    "streams.jetstream.ports.consumer.UNANSWERED_MAX",
    "streams.model.events.dead_letters.PAYLOAD_KEPT_BYTES_MAX",
    "engine.app.triggers.ENTITY_CHARS_MAX",
    "engine.app.actor.CONCURRENT_EPISODES_MAX",
    "engine.app.checks.LABEL_BYTES_MAX",
    "engine.app.triggers.SOURCES_MAX",
    "engine.validation.PATH_CHARS_MAX",
    "engine.app.dedupe.KEY_CHARS_MAX",
    "engine.episodes.fire.METADATA_BYTES_MAX",
    "engine.episodes.redaction.SHORT_BYTES_MAX",
    "engine.app.dedupe.VALUE_CHARS_MAX",
    "engine.app.checks.COUNT_MAX",
    "engine.app.actions.NAME_CHARS_MAX",
    "engine.app.tools.SYNTHESIS_TOKENS_MAX",
    "engine.validation.KEPT_BYTES_MAX",
    "engine.app.tools.RESULT_BYTES_MAX",
    "engine.app.strategy.CONVERGED_BYTES_MAX",
    "engine.app.strategy.FINDINGS_MAX",
    "engine.app.findings.SUMMARY_CHARS_MAX",
    "engine.app.findings.TTL_S_MAX",
    "engine.app.findings.AGE_S_MAX",
    "engine.app.findings.ENRICH_S_MAX",
    "engine.execution.exhausted.EXHAUSTED_S_MAX",
    "engine.app.actor.ATTEMPTS_MAX",
    "engine.episodes.episode.CYCLE_STEPS_MAX",
    "engine.episodes.episode.ROUNDS",
    "engine.usercode.call.TRACE_CHARS_MAX",
    "engine.episodes.writer.EVENTS_PER_COMMIT_MAX",
    "engine.triggers.admit.IN_FLIGHT_MAX",
    "engine.findings.apply.FINDINGS_IN_FLIGHT_MAX",
    "engine.runtime.store.CONFLICTS_MAX",
    "engine.runtime.publish.EVENTS_IN_FLIGHT_MAX",
    "engine.runtime.leases.BEATS_PER_TTL",
    "engine.node.node.GRACE_S",
    "projections.postgres.pool.CONNECTIONS_MAX",
    "projections.postgres.batches.GATHER_S",
    "projections.postgres.projector.STANDBY_S",
    "projections.postgres.projector.DELAY_S_MAX",
    "projections.postgres.query_result.ROWS_MAX",
    "projections.postgres.query_result.QUERY_S_MAX",
    "vigil.asking.repairs.diagnosis.LAG_MAX",
    "vigil.serving.processes.PROCESSES_MAX",
)
"""Those that a user or an operator may meet."""

KIB: Final = 1024
MIB: Final = 1024 * KIB
BIG: Final = 100 * KIB
"""From here on a number of bytes is said in KiB."""


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
                     for line in lines)  # fmt: skip


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command that can be typed, with what typer knows of it."""

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        children = getattr(command, "commands", None)
        if children is None:
            yield name, command
        for child in children or {}:
            yield from below(f"{name} {child}", children[child])

    return below("vigil", typer.main.get_command(whole()))


def command_sections() -> str:
    return "\n\n".join(_command(name, command) for name, command in commands())


def _command(name: str, command: Any) -> str:
    arguments = [p for p in command.params if "--" not in p.opts[0]]
    spelled = " ".join([name, *(_argument(each) for each in arguments)])
    words = " ".join(inspect.cleandoc(command.help).split())
    options = [p for p in command.params if p not in arguments and _is_shown(p)]
    parts = [f"### `{spelled}`", words]
    said = [(f"`{_argument(p)}`", p.help or "", _default(p)) for p in arguments if p.help]
    said += [(_flags(p), f"{p.help or ''}{_choices(p)}", _default(p)) for p in options]
    return "\n\n".join(
        [*parts, table(("option", "means", "default"), iter(said))] if said else parts
    )


def _is_shown(option: Any) -> bool:
    return option.name != "help" and not option.hidden


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name).upper()
    several = f"{name}..." if parameter.nargs == -1 else name
    return several if parameter.required else f"[{several}]"


def _flags(option: Any) -> str:
    return ", ".join(f"`{flag}`" for flag in [*option.opts, *option.secondary_opts])


def _choices(option: Any) -> str:
    """Return the values that an option takes, if those are few."""
    annotation = option.type_descriptor.annotation
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, Enum):
            return f" One of {', '.join(member.value for member in each)}."
    return ""


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if parameter.default in (None, False, ""):
        return ""
    if parameter.secondary_opts:
        return f"`{parameter.opts[0]}`"
    return f"`{getattr(parameter.default, 'value', parameter.default)}`"


def shared_options() -> str:
    group: Any = typer.main.get_command(whole())
    options = [p for p in group.params if p.opts[0] not in {*SETTINGS, "--help"}]
    rows = ((_flags(p), p.help or "") for p in options)
    return table(("option", "means"), rows)


def settings() -> str:
    group: Any = typer.main.get_command(whole())
    helps = {p.opts[0]: p.help for p in (*group.commands["node"].params, *group.params)}
    flags = {setting: flag for flag, setting in SETTINGS.items()} | {"app": "--app"}

    def rows() -> Iterator[tuple[str, ...]]:
        for key, value in DEFAULTS.items():
            default = f"`{value}`" if value not in {"", None} else ""
            flag = flags[key]
            words = helps[flag].replace("<", r"\<")
            yield f"`{PREFIX}{key.upper()}`", f"`{flag}`", default, words + _allowed(key, words)

    return table(("variable", "flag", "default", "means"), rows())


def _allowed(key: str, words: str) -> str:
    if (allowed := bounds(key)) is not None:
        return f" {allowed[0]:g} to {allowed[1]:g}."
    choices = [str(one) for one in get_args(TYPES[key])]
    return "" if all(one in words for one in choices) else f" One of {', '.join(choices)}."


_COMMENT: Final = re.compile(
    r"COMMENT ON (TABLE|VIEW|COLUMN|TYPE|FUNCTION) ([\w.]+)(?:\([^)]*\))?\s+IS\s+'((?:[^']|'')*)'"
)


def comments() -> Iterator[tuple[str, str, str]]:
    """Yield what the migrations say of each table, view and column: kind, name and words."""
    for migration in migrations():
        for kind, name, words in _COMMENT.findall(migration.text):
            yield kind, name, words.replace("''", "'")


def tables() -> str:
    columns: dict[str, dict[str, str]] = {}
    heads: dict[str, str] = {}
    for kind, name, words in comments():
        if kind in {"TABLE", "VIEW"}:
            heads[name] = f"### `{name}`\n\n{kind.capitalize()}. {words}"
        elif kind == "COLUMN":
            of, _, column = name.partition(".")
            columns.setdefault(of, {})[f"`{column}`"] = words  # The newest migration counts.
    return "\n\n".join(
        f"{head}\n\n{table(('column', 'contains'), iter(columns.get(name, {}).items()))}"
        for name, head in heads.items()
    )


def public_events() -> str:
    """Return what the engine publishes: the names, when, and what each payload holds."""
    return table(("event", "payload"), (
        (f"`{name}`", ", ".join(f"`{key}`" for key in payload)) for name, payload in published()
    ))  # fmt: skip


def expectation_options() -> str:
    tree = ast.parse(inspect.getsource(ExpectationOptions))
    words = dict(_documented(tree.body[0].body))  # type: ignore[attr-defined] # It is a class.
    options = fields(ExpectationOptions)
    rows = ((f"`{each.name}`", words[each.name], _default_of(each)) for each in options)
    return table(("option", "means", "default"), rows)


def actor_options() -> str:
    """Return what `Actor` takes by keyword, as the docstring of its constructor says it."""
    words = dict(_ARGUMENT.findall(inspect.getdoc(Actor.__init__) or ""))
    signature = inspect.signature(Actor)
    options = [each for each in signature.parameters.values() if each.kind is each.KEYWORD_ONLY]
    rows = (
        (f"`{each.name}`", _sentence(words[each.name]), _shown_default(each.default))
        for each in options
    )
    return table(("option", "means", "default"), rows)


_ARGUMENT: Final = re.compile(r"(?ms)^    (\w+): (.*?)(?=^    \w|^\S|\Z)")
"""An argument in the docstring of a function, with its words."""


def _sentence(words: str) -> str:
    plain = " ".join(words.split())
    return f"{plain[0].upper()}{plain[1:]}"


def _shown_default(value: object) -> str:
    is_plain = isinstance(value, str | int | float) and value not in {"", 0}
    return f"`{value}`" if is_plain else ""


def _default_of(option: Field[Any]) -> str:
    """Return the default of an option; of what is no plain value the words tell it."""
    if option.default is MISSING and option.default_factory is MISSING:
        return "required"
    is_plain = isinstance(option.default, str | int | float) and option.default != ""
    return f"`{option.default}`" if is_plain else ""


def trigger_kinds() -> str:
    """Return the kinds of triggers: how code, rows and files call each, and what it stands for."""
    rows = (
        (f"`{each.__name__}`", f"`{each.__struct_config__.tag}`", inspect.getdoc(each) or "")
        for each in get_args(Trigger)
    )
    return table(("trigger", "`trigger_type` in the tables", "an episode has it if"), rows)


def trigger_fields() -> str:
    """Return what the `trigger` of a strategy has: what every one has, then by its kind."""
    words: dict[tuple[str, str], tuple[str, str]] = {}
    for each in get_args(Trigger):
        (tree,) = ast.parse(inspect.getsource(each)).body
        documented = dict(_documented(tree.body))  # type: ignore[attr-defined] # It is a class.
        for name in each.__struct_fields__:
            of = "" if name in _OF_EVERY_TRIGGER else f"`{each.__name__}`"
            if (of, name) not in words:
                words[of, name] = (f"`{annotations(each)[name]}`", documented[name])
    kinds = sorted(words.items(), key=lambda each: bool(each[0][0]))
    rows = ((of or "every one", f"`{name}`", *said) for (of, name), said in kinds)
    return table(("trigger", "field", "type", "is"), rows)


def annotations(type_: type) -> Mapping[str, str]:
    """Return field → its type, as the source has it."""
    return {name: str(each) for name, each in inspect.get_annotations(type_).items()}


_OF_EVERY_TRIGGER: Final = ("payload", "entity_id", "hops")


def limits() -> str:
    return table(("limit", "value", "is"), (_limit(name) for name in LIMITS))


def _limit(path: str) -> tuple[str, ...]:
    module_name, _, name = path.rpartition(".")
    module = importlib.import_module(module_name)
    value = getattr(module, name)
    words = _words_under(inspect.getsource(module), name)
    return f"`{path}`", _size(value) if "BYTES" in name else _number(value), words


def _size(value: int) -> str:
    if value >= BIG and value % MIB == 0:
        return f"{value // MIB} MiB"
    return f"{value // KIB} KiB" if value >= BIG else _number(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def _words_under(source: str, name: str) -> str:
    """Return the docstring that stands under the constant `name`."""
    return dict(_documented(ast.parse(source).body))[name]


def _documented(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield each name that is assigned in `body` with the docstring that stands under it."""
    for node, after in pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        words = getattr(getattr(after, "value", None), "value", None)
        if isinstance(words, str):
            for target in targets:
                yield getattr(target, "id", ""), " ".join(words.split())


def metrics() -> str:
    rows = ((f"`{name}`", kind, unit, says) for name, kind, unit, says in sorted(_instruments()))
    return table(("metric", "kind", "unit", "is"), rows)


def _instruments() -> Iterator[tuple[str, ...]]:
    for _, call in calls(lambda name: name.startswith("create_")):
        name = _constant(call.args[0]) if call.args else ""
        if name.startswith("vigil."):
            words = {word.arg: _constant(word.value) for word in call.keywords}
            kind = name_of(call).removeprefix("create_").replace("_", " ")
            yield name, kind, words["unit"].strip("{}"), words["description"].rstrip(".")


def spans() -> set[str]:
    """Return the name of every span, as far as it stands in the code."""
    found = calls(lambda name: name in {"start_as_current_span", "start_span", "span"})
    # The `span` of pages is a mark of HTML.
    told = [call for module, call in found if not module.startswith("vigil.web")]
    names = {_constant(call.args[0]).strip() for call in told if call.args}
    return names - {""}  # The engine's own way to start one is handed the name.


def calls(
    is_wanted: Callable[[str], bool], *, packages: Sequence[str] = PACKAGES
) -> Iterator[tuple[str, ast.Call]]:
    """Yield every call of a function whose name is wanted, with the module that it stands in."""
    for path in sorted(path for package in packages for path in (ROOT / package).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and is_wanted(name_of(node)):
                yield module, node


def name_of(call: ast.Call) -> str:
    """Return the last word of what is called."""
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "")


def _constant(node: ast.expr) -> str:
    """Return a string's text; of an f-string, what stands before the first value."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) else node
    return str(first.value) if isinstance(first, ast.Constant) else ""


FACTS: Final[Mapping[str, Callable[[], str]]] = {
    "life": diagram,
    "attempt": diagram_of_attempts,
    "commands": command_sections,
    "client": client_calls,
    "shared options": shared_options,
    "settings": settings,
    "tables": tables,
    "public events": public_events,
    "options of an actor": actor_options,
    "options of an expectation": expectation_options,
    "fields of triggers": trigger_fields,
    "kinds of triggers": trigger_kinds,
    "limits": limits,
    "public names": public_names,
    "metrics": metrics,
    "api operations": api_operations,
    "api problems": api_problems,
}

_MARKED: Final = re.compile(r"(?s)(<!-- begin ([\w ]+) -->\n)(.*?)(<!-- end \2 -->)")


def marked(page: str) -> list[tuple[str, str]]:
    """Return what `page` leaves to us: the name of each part, and what stands there now."""
    return [(name, text.rstrip("\n")) for _, name, text, _ in _MARKED.findall(text_of(page))]


def rewritten(page: str) -> str:
    """Return `page` with every part as the code says it."""
    return _MARKED.sub(lambda part: f"{part[1]}{FACTS[part[2]]()}\n{part[4]}", text_of(page))


if __name__ == "__main__":
    for each in pages():
        (ROOT / each).write_text(rewritten(each), encoding="utf-8")
