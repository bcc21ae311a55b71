"""Files of definitions: JSON, YAML or TOML text ↔ one JSON object. Pure.

A file means the same to every reader: no key may be repeated; YAML follows the core schema of YAML
1.2, in which `on`, `no` and `12:30` are texts; tags, anchors and aliases are refused, since with
them a small text can create objects or become very large.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Hashable
from pathlib import PurePath
from typing import Final, Literal, TypeAlias, get_args

import msgspec
import yaml
from yaml.events import AliasEvent, Event
from yaml.nodes import MappingNode, Node, ScalarNode

from engine.errors import BadDefinition
from engine.validation import as_json, shown
from streams.json import JsonObject
from streams.model.events import DefinitionKind

_FIELDS: Final = {
    DefinitionKind.AGENT: "expectations",
    DefinitionKind.WORKFLOW: "steps",
}
"""The fields that identify each kind."""


def kind_of(data: JsonObject) -> DefinitionKind:
    """Return the kind of `data` by the one field that identifies it, or raise `BadDefinition`."""
    said = [kind for kind, field in _FIELDS.items() if field in data]
    if len(said) != 1:
        raise BadDefinition("", "write expectations for an actor, or steps for a workflow")
    return said[0]


TEXT_BYTES_MAX: Final = 256 * 1024
"""Longest text of a definition, in bytes of UTF-8. The journal has it in one event."""

DEPTH_MAX: Final = 64
"""Deepest nesting."""

Format: TypeAlias = Literal["json", "yaml", "toml"]

FORMATS: Final[tuple[Format, ...]] = get_args(Format)

_SUFFIXES: Final = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}


def format_of(file: str) -> Format:
    """Return the format of a file by its name, or raise `BadDefinition`."""
    found = _SUFFIXES.get(PurePath(file).suffix.lower())
    for known in FORMATS:
        if found == known:
            return known
    raise BadDefinition("", f"{file!r} is of no known format; use {', '.join(_SUFFIXES)}")


def read(text: str | bytes, form: Format) -> JsonObject:
    """Return the object in `text`, or raise `BadDefinition` with one line."""
    decoded = _decoded(text)
    try:
        plain = as_json(_bounded(_READERS[form](decoded)))
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise BadDefinition("", f"not {form.upper()}: {_one_line(error)}") from error
    if not isinstance(plain, dict):
        raise BadDefinition("", f"write an object, not {shown(plain)}")
    return plain


def _decoded(text: str | bytes) -> str:
    try:
        octets = text.encode() if isinstance(text, str) else text
        if len(octets) > TEXT_BYTES_MAX:
            problem = f"{len(octets):,} bytes, the limit is {TEXT_BYTES_MAX:,}"
            raise BadDefinition("", problem)
        return octets.decode()
    except UnicodeError as error:
        raise BadDefinition("", f"not valid Unicode text: {error}") from error


def _bounded(value: object) -> object:
    """Return `value`, or raise `ValueError` if it is nested too deep."""
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [item for each in level for item in _items(each)]
        if not level:
            return value
    raise ValueError(f"more than {DEPTH_MAX} objects and lists within each other")


def _items(value: object) -> list[object]:
    match value:
        case dict():
            return list(value.values())
        case list():
            return value
        case _:
            return []


def _one_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    if isinstance(error, RecursionError):
        return f"more than {DEPTH_MAX} objects and lists within each other"
    return " ".join(str(error).split())


def _read_json(text: str) -> object:
    return json.loads(text, object_pairs_hook=_once, parse_constant=_refuse_constant)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    said: dict[str, object] = {}
    for key, value in pairs:
        if key in said:
            raise ValueError(f"{key!r} is said twice")
        said[key] = value
    return said


def _refuse_constant(constant: str) -> object:
    raise ValueError(f"{constant} is no number of JSON")


def _read_toml(text: str) -> object:
    return tomllib.loads(text)


def _read_yaml(text: str) -> object:
    # `_Loader` makes nothing but JSON's own types.
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader of our own


class _Loader(yaml.SafeLoader):
    """Reads the core schema of YAML 1.2, without tags, anchors and aliases."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as PyYAML declares it

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call] # PyYAML has no types.
        # guard: definition-does-not-explode
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            raise _refused(event, "anchors and aliases are not read here")
        if getattr(event, "tag", None):
            raise _refused(event, "tags are not read here")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, object]:  # noqa: FBT001, FBT002 - the library's
        said: set[str] = set()
        for key, _ in node.value:
            if key.tag != _TEXT_TAG:
                raise _refused(key, "a key must be a text; quote it")
            if key.value in said:
                raise _refused(key, f"{key.value!r} is said twice")
            said.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _refused(at: Event | Node, problem: str) -> ValueError:
    line = "" if at.start_mark is None else f"line {at.start_mark.line + 1}: "
    return ValueError(f"{line}{problem}")


_TEXT_TAG: Final = "tag:yaml.org,2002:str"

CORE_SCALARS: Final = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
)
"""Kinds of plain scalars: how they are written, and their first characters.

Source: YAML 1.2.2, 10.3.2.
"""


def _number(loader: yaml.SafeLoader, node: ScalarNode) -> float:
    """Return a number of YAML 1.2; 1.1 would read 010 as 8."""
    text = str(loader.construct_scalar(node))
    if text.lower().lstrip("+-") in (".inf", ".nan"):
        return math.nan
    if text.startswith(("0o", "0x")):
        return int(text, 0)
    return int(text) if node.tag.endswith(":int") else float(text)


for _kind, _pattern, _first in CORE_SCALARS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_kind}", re.compile(rf"(?:{_pattern})\Z"), _first
    )
for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)

_READERS: Final = {"json": _read_json, "yaml": _read_yaml, "toml": _read_toml}

Written: TypeAlias = Literal["yaml", "json"]
"""The formats that can be written. TOML has no null."""

NAMES: Final = ("id", "name")
"""Keys that are written first in an object, for readers."""

ODD_BREAKS: Final = frozenset("\x85\u2028\u2029")
"""Line breaks of YAML 1.1 that PyYAML folds unless they are escaped."""


def write(definition: JsonObject, form: Written) -> str:
    """Return a definition as the text of a file, names first."""
    ordered = _named_first(definition)
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(ordered), indent=2).decode() + "\n"
    return yaml.dump(ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def _named_first(value: object) -> object:
    match value:
        case dict():
            names = {key: value[key] for key in NAMES if key in value}
            return {key: _named_first(each) for key, each in (names | value).items()}
        case list():
            return [_named_first(each) for each in value]
        case _:
            return value


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or 1.2 would read as something else."""

    def ignore_aliases(self, data: object) -> bool:
        """Write everything out: anchors and aliases are not readable."""
        del data
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = '"' if ODD_BREAKS.intersection(text) else "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _Dumper.represent_text)
for _kind, _pattern, _first in CORE_SCALARS:  # guard: number-like-text-quoted
    _Dumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_kind}", re.compile(rf"(?:{_pattern})\Z"), _first
    )
