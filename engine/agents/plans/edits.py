"""What people make of calls that they are asked about. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.agents.cuts import head
from engine.app.function_tool import without_values
from engine.secrets import HIDDEN, hide, removed, texts_in, without
from engine.validation import near, shown
from streams.json import ABSENT, JsonObject
from streams.model.waits import EditableCalls, PlanForm

SUMMARY_CHARS: Final = 200
"""How much people see of what calls are for, in characters; the plan has all of it."""

PREVIEW_CHARS_MAX: Final = 4_000
"""How much people see of what a call would do, in characters."""

PREVIEWS_CHARS_MAX: Final = 30_000
"""How much they see of what all calls would do. JSON has up to 6 bytes for a character, so beside a
plan of `PLAN_BYTES_MAX` these fit in what people can be asked about, 256 KiB."""

FIELDS: Final = frozenset({"risk", "why", "would"})
"""What people see of a call of a plan beside its tool and its arguments."""

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)


@dataclass(frozen=True)
class AskedCall:
    """A call of a plan, as people are asked about it."""

    tool: str
    risk: str
    args: JsonObject
    why: str = ""
    """Empty: nobody has said."""
    would: object = ABSENT
    """What it would do, any JSON value, if that is known."""

    def shown(
        self, hidden: frozenset[str], secrets: Collection[str], *, preview_chars: int
    ) -> JsonObject:
        """Return what people see of it, without the values of the keys `hidden`, and `secrets`."""
        args = without_values(self.args, hidden)  # guard: plan-hides-secrets
        said: JsonObject = {"tool": self.tool, "risk": self.risk, "args": args}
        if self.why:
            said["why"] = without(self.why, secrets)  # guard: reason-of-call-hides-secrets
        if self.would is not ABSENT:
            # guard: preview-hides-secrets
            would = hide(without_values(self.would, hidden), secrets)
            said["would"] = head(preview_chars).of(would)
        return said


@dataclass(frozen=True)
class EditedCall:
    """A call of a plan, as people want it."""

    number: int
    tool: str
    args: JsonObject


def cut_summary(summary: str) -> str:
    """Return what people see of a summary; one that is cut says so."""
    is_whole = len(summary) <= SUMMARY_CHARS
    return summary if is_whole else f"{summary[:SUMMARY_CHARS]}…"


def secrets_of_calls(calls: Sequence[AskedCall], hidden: frozenset[str]) -> frozenset[str]:
    """Return the texts that nobody may see, which what is said of `calls` may quote."""
    shown_args = ((each.args, without_values(each.args, hidden)) for each in calls)
    return frozenset(text for args, seen in shown_args for text in removed(args, seen))


def shown_plan(calls: Sequence[AskedCall], hidden: frozenset[str]) -> dict[str, JsonObject]:
    """Return the plan that people see and may change: each call by its number, from 1."""
    secrets = secrets_of_calls(calls, hidden)
    previews = sum(each.would is not ABSENT for each in calls)
    # guard: previews-fit-together
    chars = min(PREVIEW_CHARS_MAX, PREVIEWS_CHARS_MAX // max(previews, 1))
    return {
        str(number): each.shown(hidden, secrets, preview_chars=chars)
        for number, each in enumerate(calls, start=1)
    }


def editable_calls(
    form: PlanForm, calls: Sequence[AskedCall], schemas: Mapping[str, JsonObject]
) -> EditableCalls:
    """Return what people may make of `calls`; `schemas`: tool → the schema of its arguments."""
    arguments: dict[str, tuple[str, ...] | None] = {}
    for name, schema in schemas.items():
        given = [each for call in calls if call.tool == name for each in call.args]
        names = dict.fromkeys([*schema.get("properties", {}), *given])
        arguments[name] = None if schema.get("additionalProperties") else tuple(names)
    return EditableCalls(form=form, arguments=arguments)


def edited_calls(
    terms: EditableCalls, calls: Sequence[AskedCall], plan: object
) -> list[EditedCall]:
    """Return what people have made of `calls`, by their numbers; `ValueError`: they may not.

    Only tools and arguments count; the rest is there to be read. What was hidden and is left so
    stays what it was.
    """
    match terms.form, plan:
        case PlanForm.ARGUMENTS, dict():
            return [_edited(calls, 1, calls[0].tool, plan, terms)]
        case PlanForm.ARGUMENTS, _:
            raise ValueError(f"{shown(plan)} is no arguments; write {{name: value}}")
        case _, dict():
            # guard: one-call-for-each-number
            if strays := [each for each in plan if not _NUMBER.fullmatch(str(each))]:
                raise ValueError(f"{shown(strays[0])} is no number of a call: 1, 2 and so on")
            by_number = sorted((int(key), key) for key in plan)
            return [_numbered(calls, number, plan[key], terms) for number, key in by_number]
        case _:
            raise ValueError(f"{shown(plan)} is no plan; write {{number: {{tool: …, args: …}}}}")


def problem_of_edit(terms: EditableCalls, asked: object, plan: object) -> str:
    """Return in one line why people cannot make `plan` of `asked`, as they see it; empty: they can.

    Whether the values of arguments fit, only the tools know.
    """
    try:
        edited_calls(terms, _seen(terms, asked), plan)
    except ValueError as problem:
        return str(problem)
    return ""


def _seen(terms: EditableCalls, asked: Any) -> list[AskedCall]:  # noqa: ANN401 - any JSON value
    """Return the calls that people are shown in the plan `asked`."""
    if terms.form is PlanForm.ARGUMENTS:
        (tool,) = terms.arguments
        return [AskedCall(tool, "", asked)]
    by_number = sorted((int(number), each) for number, each in asked.items())
    return [AskedCall(each["tool"], each["risk"], each["args"]) for _, each in by_number]


def _numbered(
    calls: Sequence[AskedCall], number: int, said: object, terms: EditableCalls
) -> EditedCall:
    match said:
        case {"tool": str() as tool, "args": dict() as args, **rest} if rest.keys() <= FIELDS:
            asked = calls[number - 1].tool if number <= len(calls) else ""
            # guard: other-call-calls-nothing
            if terms.form is PlanForm.CALLS and tool != asked:
                problem = "change the arguments of calls, by their names, or leave calls out"
                raise ValueError(f"call {number} is another one; {problem}")
            try:
                return _edited(calls, number, tool, args, terms)
            except ValueError as problem:
                raise ValueError(f"call {number}: {problem}") from problem
        case _:
            raise ValueError(f"call {number}: write its tool and its args, and nothing else")


def _edited(
    calls: Sequence[AskedCall], number: int, tool: str, args: JsonObject, terms: EditableCalls
) -> EditedCall:
    if tool not in terms.arguments:  # guard: tool-of-edit-is-there
        raise ValueError(f"there is no tool {tool!r}; {near(tool, terms.arguments)}")
    names = terms.arguments[tool]
    stray = None if names is None else next((each for each in args if each not in names), None)
    if stray is not None:  # guard: other-changes-call-nothing
        told = f"{tool}(): there is no argument {shown(stray)}"
        raise ValueError("; ".join(filter(None, (told, near(stray, names or ())))))
    asked = calls[number - 1] if number <= len(calls) else None
    is_same = asked is not None and asked.tool == tool
    # guard: hidden-value-stays-with-tool
    before = asked.args if asked is not None and is_same else {}
    try:
        return EditedCall(number, tool, restored(args, before))
    except LookupError as error:
        raise ValueError(f"{error} stands where nothing was hidden") from error


def restored(edited: object, asked: object) -> Any:  # noqa: ANN401 - any JSON value
    """Return `edited` with the values of `asked` where people were shown that one is hidden.

    Raises `LookupError` if there is none at that place, or if that is in an item of a list of which
    nobody knows which one it was.
    """
    match edited:
        case str() if edited == HIDDEN:
            if asked is ABSENT:
                raise LookupError(HIDDEN)
            return asked
        case dict():
            named = asked if isinstance(asked, dict) else {}
            return {name: restored(each, named.get(name, ABSENT)) for name, each in edited.items()}
        case list():
            listed = asked if isinstance(asked, list) else []
            return [
                restored(each, _item(edited, number, listed)) for number, each in enumerate(edited)
            ]
        case _:
            return edited


def _item(edited: Sequence[object], number: int, asked: Sequence[object]) -> object:
    """Return the item of `asked` that people have left at a place; `ABSENT`: nobody knows which."""
    item = edited[number]
    if len(edited) == len(asked) and _is_left(item, asked[number]):
        return asked[number]
    # Long lists are seldom of anything hidden.
    alike = [each for each in asked if _is_left(item, each)] if HIDDEN in texts_in(item) else []
    return alike[0] if len(alike) == 1 else ABSENT  # guard: hidden-value-stays-with-item


def _is_left(edited: object, asked: object) -> bool:
    """Return whether people have left a value as it was, but for what is hidden."""
    match edited, asked:
        case str(), _ if edited == HIDDEN:
            return True
        case dict(), dict():
            is_same = edited.keys() == asked.keys()
            return is_same and all(_is_left(each, asked[name]) for name, each in edited.items())
        case list(), list():
            is_same = len(edited) == len(asked)
            return is_same and all(map(_is_left, edited, asked))
        case _:
            return edited == asked
