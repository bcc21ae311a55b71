"""What a dry run puts in the place of the outside: how it is said, and what it may say. Pure.

    overrides(tools={"mail.send": {"id": 7}}, synthesis="all is well", persist_findings=True)

Overrides are declared with an expectation, or given with a fire by hand, there also as JSON with
the same three names. Which of the two holds is `engine.dryrun`'s to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from engine import state
from engine.actions import NAME_CHARS_MAX
from engine.errors import Unencodable
from streams.errors import BadName
from streams.json import UNDECODABLE
from streams.tokens import name as checked_name
from streams.triggers import Overrides

OVERRIDES_BYTES_MAX: Final = 192 * 1024
"""Most that the overrides of one place may hold, in bytes of JSON. Those of a fire and those of its
expectation are kept with the payload (512 KiB) in one commit, of 1 MiB by the server's default."""

PREFIX: Final = "dry_run"
"""What the findings that a dry run keeps begin with, unless it says otherwise."""

FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(Overrides))
"""What overrides may say."""


def overrides(
    *,
    tools: Mapping[str, object] | None = None,
    synthesis: object = None,
    persist_findings: bool | str = False,
) -> Overrides:
    """Return what a dry run uses in the place of the outside.

    Args:
        tools: `capability.action` → the result, any JSON value, that stands for calling it, also
            where there is no such tool.
        synthesis: any JSON value but `null` that stands for every synthesis; None: none does.
        persist_findings: whether its findings are kept, under keys and an actor of their own:
            False, they are not; True, those begin with `dry_run:`; or a name to begin with
            instead, 1 to 64 of `A-Z a-z 0-9 _ -`.

    Raises:
        ValueError: a value is impossible; the message names the field.
    """
    try:
        return _made(tools or {}, synthesis, persist_findings)
    except ValueError as error:
        raise ValueError(f"overrides(): {error}") from error


def parse_overrides(text: str | bytes) -> Overrides:
    """Return the overrides that `text` says: a JSON object of some of `FIELDS`.

    Raises:
        ValueError: it says none; the message is one line that names the field.
    """
    try:
        said = msgspec.json.decode(text)
    except UNDECODABLE as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(said, dict):
        raise ValueError(f"not a JSON object of {', '.join(FIELDS)}")  # noqa: TRY004 - it is data
    if strays := sorted(said.keys() - set(FIELDS)):
        raise ValueError(f"no field {strays[0]!r}; there are {', '.join(FIELDS)}")
    synthesis = said.get("synthesis")
    if synthesis is None and "synthesis" in said:
        raise ValueError("synthesis: null stands for none; leave it out")
    return _made(said.get("tools", {}), synthesis, said.get("persist_findings", False))


def problem_of_overrides(given: object) -> str | None:
    """Return why a dry run cannot use `given`, in words for whoever gave it, or None."""
    if not isinstance(given, Overrides) or not isinstance(given.tools, dict):
        return f"{given!r}: not made by overrides(tools={{'mail.send': …}})"
    for tool_name in given.tools:
        if problem := _problem_of_tool_name(tool_name):
            return f"tools: {problem}"
    values = {**given.tools, "synthesis": given.synthesis}
    if strays := [name for name, value in values.items() if not _is_json(value)]:
        return f"{strays[0]}: not JSON; use overrides(…), which takes any value"
    if (size_bytes := size_of(given)) > OVERRIDES_BYTES_MAX:
        return f"{size_bytes:,} bytes, the limit is {OVERRIDES_BYTES_MAX:,}"
    return _problem_of_prefix(given.persist_findings) if given.persist_findings else None


def size_of(given: Overrides) -> int:
    """Return what the values of overrides come to, in bytes of JSON."""
    return sum(len(bytes(value)) for value in (*given.tools.values(), given.synthesis))


def parse_step_overrides(text: str | bytes) -> dict[str, Overrides]:
    """Return the overrides of steps that `text` says: a JSON object of step to overrides.

    Raises:
        ValueError: it says none; the message is one line that names the step and the field.
    """
    try:
        said = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except UNDECODABLE as error:
        raise ValueError(f"not a JSON object of step to overrides: {error}") from error
    made = {}
    for step, each in said.items():
        try:
            made[step] = parse_overrides(bytes(each))
        except ValueError as error:
            raise ValueError(f"{step}: {error}") from error
    return made


def _made(tools: object, synthesis: object, persist_findings: object) -> Overrides:
    if not isinstance(tools, Mapping):
        raise ValueError(f"tools: {tools!r} is not a dict of 'capability.action' to results")  # noqa: TRY004 - as for its values
    try:
        results = {
            tool: state.encode(given, what=f"tools: {tool}") for tool, given in tools.items()
        }
        made = Overrides(
            tools=results,
            synthesis=state.encode(synthesis, what="synthesis"),
            persist_findings=_prefix(persist_findings),
        )
    except Unencodable as error:
        raise ValueError(str(error)) from error
    if problem := problem_of_overrides(made):
        raise ValueError(problem)
    return made


def _prefix(persist_findings: object) -> str:
    """Return what kept findings begin with; empty: none are kept."""
    if isinstance(persist_findings, bool):
        return PREFIX if persist_findings else ""
    if problem := _problem_of_prefix(persist_findings):
        raise ValueError(problem)
    return str(persist_findings)


def _problem_of_prefix(prefix: object) -> str | None:
    if not isinstance(prefix, str):
        return f"persist_findings: {prefix!r} is not True, False or a name"
    try:
        checked_name(prefix, of="persist_findings")
    except BadName as error:
        return str(error)
    return None


def _problem_of_tool_name(tool_name: object) -> str | None:
    text = tool_name if isinstance(tool_name, str) else ""
    capability, _, action = text.partition(".")
    if not capability or not action:
        return f"{tool_name!r} is not a capability and an action, such as 'mail.send'"
    if max(len(capability), len(action)) > NAME_CHARS_MAX:
        return f"{text[:40]!r}…: the limit is {NAME_CHARS_MAX} characters on each side"
    return None


def _is_json(value: object) -> bool:
    if not isinstance(value, msgspec.Raw):
        return False
    try:
        msgspec.json.decode(value)
    except UNDECODABLE:
        return False
    return True
