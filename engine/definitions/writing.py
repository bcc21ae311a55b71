"""Definitions → texts that `texts.read` reads as the same again. Pure."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import msgspec
import yaml

from engine.definitions.texts import CORE_SCALARS
from streams.json import JsonObject

Written: TypeAlias = Literal["yaml", "json"]
"""What a definition can be written as. TOML has no null."""

NAMES: Final = ("id", "name")
"""What stands first in an object, for people: what it is about."""

ODD_BREAKS: Final = frozenset("\x85\u2028\u2029")
"""Line breaks of YAML 1.1 that PyYAML folds into others unless they are escaped."""


def write(definition: JsonObject, form: Written) -> str:
    """Return a definition as the text of a file; what something is called stands first."""
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
    """Quotes every text that YAML 1.1 or the core schema of 1.2 would read as something else."""

    def ignore_aliases(self, data: object) -> bool:
        """Write everything out: anchors and aliases are not read."""
        del data
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Write a text of several lines as such."""
        style = '"' if ODD_BREAKS.intersection(text) else "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _Dumper.represent_text)
for _kind, _pattern, _first in CORE_SCALARS:
    _Dumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_kind}", re.compile(rf"(?:{_pattern})\Z"), _first
    )
