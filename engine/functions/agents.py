"""`AgentParts`: what an agent does in a function, each part with a path of its own.

The agent of call `4` asks its model for the second time at `4.m2.1`, and the third tool that the
answer calls makes its first call at `4.t2-3.1`. The tasks in which that happens are the library's.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from engine.agents import unit as units
from engine.app.actions import OfAgent, Sleep
from engine.episodes.episode import Performed
from engine.errors import InvalidAction
from engine.functions.activity import AgentActivity
from engine.functions.branch import Branch, entered
from engine.functions.place import place_of_call
from engine.functions.run import StrategyRun, Taken
from streams.json import raw
from streams.model.events import EpisodeOpened, StepKind, StepRecorded, StoredResult
from streams.model.triggers import LogStrategy

if TYPE_CHECKING:  # The extra may not be there.
    from engine.agents.run import AgentCall
    from engine.agents.spec import DeclaredAgent

MISSING: Final = 'ctx.agent needs the extra "agents": pip install "vigil-engine[agents]"'

LIBRARY: Final = "pydantic_ai"

PROMPT_CHARS_MAX: Final = 16_000
"""How much of a prompt people see, in characters: a commit must hold it."""

PAUSE: Final = "z"
"""The part of an agent in which its library pauses, such as between two looks at a batch."""


@dataclass
class AgentParts:
    """The parts of one run of an agent, at `path`."""

    run: StrategyRun
    activity: AgentActivity
    episode_id: str
    path: str
    origin: str
    shows_prompts: bool
    """Whether people may see what its model is asked."""
    _branches: dict[str, Branch] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Names the run of the agent, and is the same for each node: `<episode>:<path>`."""
        return f"{self.episode_id}:{self.path}"

    @property
    def recorded(self) -> int:
        """How many steps of the function this node has made and recorded by now."""
        return self.run.steps_made

    def recorded_at(self, place: str) -> StepRecorded | None:
        """Return the record at `place`, such as `m2.1`, until it is asked for; else None."""
        return self.run.recorded_part(f"{self.path}.{place}")

    async def find(self, stored: StoredResult) -> msgspec.Raw | None:
        """Return what is in the object store; None: it is gone, or damaged."""
        return await self.run.find(stored)

    @asynccontextmanager
    async def enter(self, name: str) -> AsyncIterator[None]:
        """Have the current task make its calls as part `name` of the agent, for a while."""
        branch = self._branches.get(name)
        if branch is None:
            prefix = f"{self.path}.{name}."
            branch = Branch(self.run, self.activity, prefix, origin=self.origin)
            self._branches[name] = branch
            self.run.note_branch(branch)
        self.activity.begin()
        try:
            with entered(branch):
                yield
        finally:
            self.activity.end()

    async def unit(self, unit: units.Unit) -> units.UnitResult:
        """Return the result of `unit`, within the part that was entered."""
        return await self.run.unit(unit)

    async def sleep(self, seconds: float) -> None:
        """Go on after `seconds`; from 5 s on, no node has the episode."""
        async with self.enter(PAUSE):
            await self.run.step(Sleep(seconds))


def _cut(text: str) -> str:
    return text if len(text) <= PROMPT_CHARS_MAX else f"{text[:PROMPT_CHARS_MAX]}…"


def agents() -> ModuleType:
    """Return the module that runs agents; `InvalidAction`: the extra is not installed."""
    try:
        return importlib.import_module("engine.agents.run")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("engine"):
            raise
        raise InvalidAction(MISSING) from error


def declared_agent(found: object) -> DeclaredAgent | None:
    """Return what is declared of an agent before it runs; None: it is no agent."""
    kinds = (each.__module__.partition(".")[0] for each in type(found).__mro__)
    if LIBRARY not in kinds:  # Nothing else needs the library, which takes a second to load.
        return None
    declared: DeclaredAgent | None = importlib.import_module("engine.agents.spec").declared_of(
        found
    )
    return declared


def problem_of_provider(model: str) -> str:
    """Return that no provider of a model is known; empty: it is, or nobody can say."""
    try:
        said: str = importlib.import_module("engine.agents.spec").problem_of_provider(model)
    except ImportError:
        return ""
    return said


def problem_of_agent(agent: object, prompt: object, on_change: object) -> str:
    """Return why an agent cannot be run so; empty: it can."""
    if not hasattr(agent, "run") or not hasattr(agent, "name"):
        return f"agent: {agent!r} is none; give it Agent(…) of pydantic_ai"
    if not (prompt is None or isinstance(prompt, str | list | tuple)):
        kind = type(prompt).__name__
        return f"agent: the prompt is a {kind}, not text; write text, or data(…) of vigil.agents"
    if on_change not in get_args(units.OnChange):
        *some, last = map(repr, get_args(units.OnChange))
        known = f"{', '.join(some)} or {last}"
        return f"agent: on_change: {on_change!r}; use {known}"
    return ""


async def run_recorded(
    run: StrategyRun, ctx: object, asked: AgentCall, opened: EpisodeOpened
) -> Taken:
    """Return how the run of an agent has ended, as recorded or after it was run."""
    shows_prompts = opened.log_strategy is LogStrategy.FULL_DEBUG
    origin = place_of_call()

    async def work(activity: AgentActivity, path: str) -> Performed:
        parts = AgentParts(run, activity, opened.episode_id, path, origin, shows_prompts)
        made = await agents().run_agent(parts, ctx, asked)
        return Performed(
            kind=StepKind.AGENT,
            fingerprint="",
            tool_name=asked.name,
            args=raw({"prompt": _cut(asked.shown_prompt)}),
            result=made.result,
            result_shown=made.shown,  # guard: agents-output-redacted
            error_class=made.error_class,
            error_detail=made.error_detail,
        )

    values = {"prompt": asked.shown_prompt}
    return await run.with_agent(OfAgent(StepKind.AGENT, asked.name, values), work)
