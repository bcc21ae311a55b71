"""`plan_of`: plans of several calls as the output of an agent, checked against its tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import msgspec
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_ai import InlineDefsJsonSchemaTransformer
from pydantic_core import CoreSchema, core_schema

from engine.agents.plans.edits import AskedCall, editable_calls, edited_calls
from engine.agents.result import output_types
from engine.agents.toolset import Given, StepTool, step_tool
from engine.app.function_tool import FunctionTool
from engine.app.tools import OfferedTool, Risk
from engine.errors import InvalidAction
from engine.validation import is_whole, near
from streams.json import JsonObject, raw
from streams.model.waits import EditableCalls, PlanForm

CALLS_MAX: Final = 10
"""Most calls of a plan, unless it is declared with another number."""

CALLS_MOST: Final = 100
"""Most calls that a plan may be declared with."""


PLAN_BYTES_MAX: Final = 64 * 1024
"""Most bytes of a plan's arguments and reasons, as JSON: people see all of them at once."""


@dataclass(frozen=True)
class PlannedCall:
    """A call that a plan proposes."""

    tool: str
    """As a model knows it, such as `restart`."""
    args: JsonObject = field(default_factory=dict)
    why: str = ""
    """For people who decide on it."""


@dataclass(frozen=True)
class PlanTools:
    """What a plan may call."""

    tools: Mapping[str, StepTool]
    previews: Mapping[str, StepTool]
    """Tool → the tool that says what a call of it would do."""
    calls_max: int

    @property
    def every(self) -> Sequence[StepTool]:
        """Its tools and their previews."""
        return [*self.tools.values(), *self.previews.values()]

    @property
    def hidden(self) -> frozenset[str]:
        """The names of arguments whose values nobody may see."""
        return frozenset(name for each in self.every for name in each.tool.hidden)

    def check(self, calls: Sequence[PlannedCall]) -> None:
        """Raise `ValueError` if one of `calls` cannot be made, or if they are too many."""
        if len(calls) > self.calls_max:  # guard: plan-calls-max
            raise ValueError(f"{len(calls)} calls; a plan has {self.calls_max} at most")
        for number, each in enumerate(calls, start=1):
            tool = self.tools.get(each.tool)
            if tool is None:  # guard: planned-tool-is-there
                problem = f"there is no tool {each.tool!r}; {near(each.tool, self.tools)}"
                raise ValueError(f"call {number}: {problem}")
            if told := tool.tool.problem_of(each.args):  # guard: planned-arguments-fit
                raise ValueError(f"call {number}: {told}")
        size = _size_bytes(calls)
        if size > PLAN_BYTES_MAX:  # guard: plan-bytes-max
            raise ValueError(f"{size:,} bytes of arguments; a plan has {PLAN_BYTES_MAX:,} at most")

    def schema(self) -> JsonObject:
        """Return the JSON schema of a plan: each call has the arguments of its tool."""
        calls = {"type": "array", "maxItems": self.calls_max, "description": "In their order."}
        said = {"type": "string", "description": "What it is for, in a sentence."}
        properties = {"summary": said, "calls": {**calls, "items": {"anyOf": self._calls()}}}
        return {
            "type": "object",
            "description": "Calls of tools that are to be made.",
            "properties": properties,
            "required": ["summary", "calls"],
        }

    def _calls(self) -> list[JsonObject]:
        return [
            {
                "type": "object",
                "description": f"{each.tool.description} Risk: {each.risk_shown}.".strip(),
                "properties": {
                    "tool": {"const": name, "type": "string"},
                    "args": _inlined(each),
                    "why": {"type": "string", "description": "Why this call, for people."},
                },
                "required": ["tool", "args"],
            }
            for name, each in self.tools.items()
        ]


@dataclass(frozen=True)
class CallPlan:
    """Calls that an agent proposes, in order; `plan_of` makes a class of it for certain tools."""

    summary: str
    calls: tuple[PlannedCall, ...]

    tools: ClassVar[PlanTools | None] = None
    """What it may call; None: it was made by no class of `plan_of`."""

    def __post_init__(self) -> None:
        """Refuse calls that cannot be made, with `ValueError`."""
        object.__setattr__(self, "calls", tuple(self.calls))
        if self.tools is not None:
            self.tools.check(self.calls)

    def asked(self, would: Mapping[int, object]) -> list[AskedCall]:
        """Return its calls as people are asked about them; `would`: what some of them would do."""
        return [
            AskedCall(
                each.tool,
                _tools(self).tools[each.tool].risk_shown,
                each.args,
                each.why,
                would.get(number, msgspec.UNSET),
            )
            for number, each in enumerate(self.calls, start=1)
        ]

    @property
    def editable(self) -> EditableCalls:
        """What people may make of it."""
        schemas = {name: each.tool.schema for name, each in _tools(self).tools.items()}
        return editable_calls(PlanForm.PLAN, self.asked({}), schemas)

    def edited(self, plan: object) -> CallPlan:
        """Return what people have made of it; `ValueError`: it cannot be carried out."""
        wanted = edited_calls(self.editable, self.asked({}), plan)
        calls = tuple(PlannedCall(each.tool, each.args) for each in wanted)
        return type(self)(self.summary, calls)

    def is_risky(self, ask_from: Risk | None) -> bool:
        """Return whether people are asked about it who are asked from a risk on; None: never."""
        tools = _tools(self).tools
        return any(tools[each.tool].is_risky(ask_from) for each in self.calls)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Have pydantic read it, and refuse calls that cannot be made."""
        del source, handler
        return core_schema.no_info_plain_validator_function(cls._read)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonObject:
        """Tell models what it is."""
        del schema, handler
        return _tools(cls).schema()

    @classmethod
    def _read(cls, said: object) -> CallPlan:
        try:
            return msgspec.convert(said, cls, from_attributes=True)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error


def _size_bytes(calls: Sequence[PlannedCall]) -> int:
    """Return how large what people see of them is; `ValueError`: it is no JSON."""
    try:
        return len(memoryview(raw([[each.args, each.why] for each in calls])))
    except TypeError as error:
        raise ValueError(f"arguments: {error}") from error


def _inlined(tool: StepTool) -> JsonObject:
    """Return the schema of a tool's arguments, which then may stand within another one."""
    schema: JsonObject = InlineDefsJsonSchemaTransformer(tool.tool.schema).walk()
    if "$defs" in schema:
        raise InvalidAction(f"{tool.name}: its arguments contain themselves; no plan can call it")
    return schema


def _tools(plan: CallPlan | type[CallPlan]) -> PlanTools:
    if plan.tools is None:
        raise InvalidAction("a CallPlan of no tools; make its class with plan_of(…)")
    return plan.tools


def tools_of_plans(output_type: object) -> list[PlanTools]:
    """Return what the plans may call that an agent has as its output."""
    types = (each for each in output_types(output_type) if isinstance(each, type))
    plans = (each.tools for each in types if issubclass(each, CallPlan))
    return [each for each in plans if each is not None]


def plan_of(
    *tools: Given,
    previews: Mapping[Given, FunctionTool[..., Any] | OfferedTool] | None = None,
    calls_max: int = CALLS_MAX,
) -> type[CallPlan]:
    """Return the type of plans that call `tools`, for `Agent(output_type=…)` and `run_plan`.

    A model is told the tools with their descriptions, arguments and risks. A plan whose calls
    cannot be made is no output: the model is told why, and may correct it. In code,
    `plan_of(restart)("as agreed", [PlannedCall("restart", {"service": "web"})])` is such a plan,
    and raises `ValueError` if it cannot be carried out.

    Args:
        tools: as for `toolset`.
        previews: one of `tools` → a tool that only reads, takes the same arguments, and says what
            the call would do. People see that before they decide.
        calls_max: most calls of a plan, up to 100.

    Raises `InvalidAction` if one is no tool, two have one name, or a preview cannot be one.
    """
    if not is_whole(calls_max) or not 1 <= calls_max <= CALLS_MOST:
        raise InvalidAction(f"calls_max: {calls_max!r} is no whole number from 1 to {CALLS_MOST}")
    made: dict[str, StepTool] = {}
    for each in tools:
        one = step_tool(each)
        if one.name in made:
            raise InvalidAction(f"two tools are called {one.name!r}")
        made[one.name] = one
    if not made:
        raise InvalidAction("plan_of: no tools; name those that a plan may call")
    told: dict[str, StepTool] = {}
    for of, by in (previews or {}).items():
        if of not in tools:
            raise InvalidAction(f"previews: {of!r} is none of the tools")
        one = step_tool(of)
        told[one.name] = _preview(one, step_tool(by))
    offered = PlanTools(made, told, calls_max)
    offered.schema()  # A tool that cannot be in it is refused here.
    return type("CallPlan", (CallPlan,), {"tools": offered})


def _preview(of: StepTool, by: StepTool) -> StepTool:
    """Return the preview of a tool, or raise `InvalidAction`."""
    if by.risk != "read":  # guard: preview-only-reads
        raise InvalidAction(f"previews: {by.name} may {by.risk}; a preview only reads")
    wanted, taken = (each.tool.schema.get("properties", {}).keys() for each in (of, by))
    if wanted != taken:
        raise InvalidAction(f"previews: {by.name} takes other arguments than {of.name}")
    return by
