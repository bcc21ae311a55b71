"""`Unit`: what an agent does once, and `UnitOutcome`: what that has brought."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from engine.app.actions import Retries
from streams.json import NOTHING
from streams.model.events import StepKind, StepRecorded, StoredResult

AGENT_BYTES_MAX: Final = 1024 * 1024
"""Most bytes of JSON of an agent that are kept: its instructions, tools and settings."""

MESSAGES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Most bytes of JSON of the messages of a request that are kept, as of a result of a tool."""

MESSAGES_HERE_BYTES_MAX: Final = 16 * 1024
"""Most bytes of JSON of messages in the journal; larger ones are in the object store."""

MAX_TOKENS: Final = "max_tokens"
"""The setting of a model that limits its answers."""

LIMIT_THE_ANSWER: Final = "a limit in dollars applies, so its answers need one, too"
"""Without a longest answer nobody knows the most that a request costs; then none is made."""

LIMITED_AGENT: Final = "Agent(…, model_settings={'max_tokens': 4_000})"

LIMITED_MODEL: Final = "Model(…, settings={'max_tokens': 4_000})"

MODEL_RETRIES: Final = Retries(attempts_max=6, first_s=1.0, most_s=60.0)
"""How often a request to a model is repeated: after 1, 2, 4, 8 and 16 s, about half a minute."""

OTHER_MODEL: Final[ContextVar[str]] = ContextVar("other_model", default="")
"""The model that is asked instead of the agents' own; empty: none is."""

OnChange: TypeAlias = Literal["park", "go_on", "old"]
"""What becomes of an episode whose agent asks its model for something else than was recorded."""


class UnitOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a unit has brought."""

    result: msgspec.Raw = NOTHING
    """As the agent's library encodes it; of a failure, what makes its exception again."""
    shown: msgspec.Raw = NOTHING
    """As people may see it, where that differs."""
    error_class: str = ""
    """Empty: it has not failed."""
    error_detail: str = ""
    is_billed: bool = True
    """Whether the provider may take money for it, though it has failed."""
    retry_after_s: float = 0.0
    """After how many seconds it may be repeated, as the provider says; 0: it does not say."""
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: Decimal | None = None
    """None: nobody knows."""


@dataclass(frozen=True, kw_only=True)
class RequestSize:
    """How large a request to a model is, for what it may cost."""

    model: str
    """As `provider:name`, or the name alone."""
    bytes_in: int
    """Of everything that is sent, in UTF-8."""
    output_tokens_max: int | None
    """None: it is not limited."""


class AnswerListener(Protocol):
    """Hears what a model answers while it does."""

    def say(self, text: str) -> None:
        """Take what the model goes on with."""

    def call(self, tool: str) -> None:
        """Take that a call of `tool` begins."""


@dataclass(frozen=True, kw_only=True)
class PromptToKeep:
    """What is to be kept of a request to a model, before it is recorded."""

    agent: msgspec.Raw
    """An `AgentVersion`: the same for all requests that the agent makes so."""
    is_needed: bool
    """Whether the agent cannot go on after a change without it."""
    after: int
    """How many of the messages of the request before are at its beginning."""
    messages: msgspec.Raw | None
    """Those that follow, without what the agent's tools hide. None: people may not see them, or
    they are no JSON."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Something that an agent does once: a request to its model, or a call of a tool of its own."""

    kind: StepKind
    name: str
    """What people see: the agent, or `<agent>.<tool>`."""
    mark: str
    """Digest of what is asked."""
    args: msgspec.Raw
    """What people see of it."""
    make: Callable[[str, AnswerListener | None], Awaitable[UnitOutcome]]
    """Makes it, with the idempotency key of the attempt; empty: it is made anew. Who listens hears
    the answer of a model that streams."""
    streams: bool = False
    """Whether it is a request whose answer comes piece by piece."""
    agent: str = ""
    """The agent with the digest of its version, as it is recorded."""
    size: RequestSize | None = None
    """If it is a request to a model."""
    retries: Retries | None = None
    """How often it is repeated if it fails, and after which pauses; None: never."""
    stands: bool = False
    """Whether a record stands for it that was made for another request."""
    told: Callable[[msgspec.Raw], str] | None = None
    """Returns how it differs from a record with these `args`."""
    problem: str = ""
    """Why the agent cannot ask as it did before it has changed, if that is known."""
    kept: Callable[[], PromptToKeep] | None = None
    """Returns what is to be kept of it; None: nothing is."""


class UnitResult(msgspec.Struct, frozen=True, kw_only=True):
    """A unit with its result: as it was recorded, or as it was just made."""

    is_new: bool
    result: msgspec.Raw
    error_class: str = ""
    error_detail: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: Decimal | None = None


class Parts(Protocol):
    """What an agent does within its run, each at a place of its own."""

    @property
    def key(self) -> str:
        """Names the run of the agent, and is the same for each node: `<episode>:<path>`."""

    @property
    def recorded(self) -> int:
        """How many steps of the function this node has made and recorded by now."""

    @property
    def shows_prompts(self) -> bool:
        """Whether people may see what its model is asked."""

    def recorded_at(self, place: str) -> StepRecorded | None:
        """Return the record at `place`, such as `m2.1`, until it is asked for; else None."""

    async def find(self, stored: StoredResult) -> msgspec.Raw | None:
        """Return what is in the object store; None: it is gone, or damaged."""

    def enter(self, name: str) -> AbstractAsyncContextManager[None]:
        """Have the current task make its calls as part `name` of the agent, for a while."""

    async def unit(self, unit: Unit) -> UnitResult:
        """Return the result of `unit`, within the part that was entered."""

    async def sleep(self, seconds: float) -> None:
        """Go on after `seconds`; from 5 s on, no node has the episode."""
