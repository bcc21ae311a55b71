"""What user code is given: `EpisodeView`, `Context`, `Exhausted` and `Findings`. Pure.

Findings are available where user code may read the outside: in `init`, `converge`, tools,
synthesizers and enrichments. `next_step` and `handle_result` run again after a crash and must
decide the same, so there `Findings` refuses. `StateSchema` numbers the shape of a strategy's state,
which may outlive the code that wrote it: every change of shape is a version with a migration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, Protocol, TypeAlias

import msgspec

from engine.app.actions import RequestApproval
from engine.errors import Limit, Unencodable
from engine.validation import Duration
from streams.json import JsonObject, raw, unraw
from streams.model.events import EpisodeOpened, StepKind
from streams.model.findings import Finding
from streams.model.triggers import Budget, Mode, Trigger

WHERE: Final = "findings can be read in init, converge, tools, synthesizers and enrichments only"


Migration: TypeAlias = Callable[[JsonObject], JsonObject]


ACTIVE_DEFAULT: Final = 50
"""How many findings `Findings.active` returns, unless it is told another number."""


class Findings(Protocol):
    """The findings of a stack, as the log has them now."""

    async def get(self, key: str) -> Finding | None:
        """Return the latest raise of a finding, active or not; None if there has never been one.

        In a dry run that stores its findings it returns the stored one of that key, if there is
        one. Raises `BadName` if no finding can have this key.
        """

    async def recent(self, key: str, within: Duration) -> Finding | None:
        """Return the finding if it was raised, changed or ended `within` that time; else None.

        `within` is a number of seconds, a text such as `15m`, or a timedelta; up to ten years;
        `ValueError` otherwise.
        """

    async def active(
        self,
        *,
        subject: tuple[str, str | None] | None = None,
        actor: str | None = None,
        class_: str | None = None,
        limit: int = ACTIVE_DEFAULT,
    ) -> Sequence[Finding]:
        """Return findings that are active now: the most severe first, of these the newest first.

        They come without their evidence, and with at most 500 characters of their summaries; `get`
        has all. In a dry run that stores its findings, these replace the live ones of their keys.
        The first such question to a node reads the state of its stack from the beginning.

        Args:
            subject: kind and id of what they are about; an id of None is any.
            actor: the actor that raised them.
            class_: their class.
            limit: 1 to 100.

        Raises `ValueError` or `TypeError` if a value is impossible.
        """


class _OutOfReach:
    def get(self, key: str) -> NoReturn:
        raise RuntimeError(f"finding {key!r}: {WHERE}")

    def recent(self, key: str, within: Duration) -> NoReturn:
        raise RuntimeError(f"finding {key!r} within {within}: {WHERE}")

    def active(self, **wanted: object) -> NoReturn:
        raise RuntimeError(f"active findings of {wanted}: {WHERE}")


OUT_OF_REACH: Final[Findings] = _OutOfReach()
"""Given to user code that must not read findings."""


class EpisodeView(msgspec.Struct, frozen=True, kw_only=True):
    """The episode, as its strategy may see it."""

    episode_id: str
    actor_id: str
    expectation_id: str
    spec_rev: str
    budget: Budget
    stack: str
    mode: Mode = Mode.LIVE
    """Live or dry run."""
    findings: Findings = OUT_OF_REACH
    """The stack's findings by key, as they are now."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Where the episode stands, as the journal knows it: the same in a replay."""

    episode_id: str
    actor_id: str
    expectation_id: str
    budget: Budget
    turn: int
    """1 for the first `next_step`."""
    tokens_used: int
    mode: Mode = Mode.LIVE
    """Live or dry run."""
    findings: Findings = OUT_OF_REACH
    """In `converge`: the stack's findings by key, as they are now. In `next_step` it refuses."""


class GatheredStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that an episode had recorded when its budget was used up."""

    kind: StepKind
    tool: str
    """`capability.action` of a tool call; else what people see as its name, or empty."""
    args: Any
    """As people see them."""
    result: Any
    """As the strategy got it; None if the step failed."""
    error_class: str = ""
    """Empty: it has not failed."""
    error_detail: str = ""


class Exhausted(msgspec.Struct, frozen=True, kw_only=True):
    """An episode whose budget is used up, for the `on_exhausted` of its expectation."""

    limit: Limit
    """Which limit of the budget: `turns`, `tokens`, `wall_s` or `usd`."""
    detail: str
    """How much was used, such as `turns: 12 used of 12`."""
    episode: EpisodeView
    trigger: Trigger
    steps: Sequence[GatheredStep]
    """What it has done, oldest first."""
    state: Any = None
    """The state of a `Strategy` after its last step. Of a function what its newest checkpoint was
    given; None: it made none.
    """


PartialResult: TypeAlias = Callable[[Exhausted], object]
"""Returns what a function may return: a `ConvergeResult`, findings or outputs; or None, which fails
the episode after all. May be async.
"""

OnExhausted: TypeAlias = PartialResult | Literal["ask"] | RequestApproval
"""What happens when the budget of an episode is used up, as it is declared."""


def view_of(opened: EpisodeOpened, stack: str, findings: Findings) -> EpisodeView:
    """Return an episode as user code may see it."""
    return EpisodeView(
        episode_id=opened.episode_id,
        actor_id=opened.actor_id,
        expectation_id=opened.expectation_id,
        spec_rev=opened.spec_rev,
        mode=opened.mode,
        budget=opened.budget,
        stack=stack,
        findings=findings,
    )


@dataclass(frozen=True)
class StateSchema:
    """The current version of a state's shape, and the migrations from older ones."""

    version: int = 1
    migrations: Mapping[int, Migration] = field(default_factory=dict)
    """Version n → function from a state of version n, as JSON, to one of n + 1."""

    def problem(self) -> str | None:
        """Return what is wrong with this schema, or None."""
        if self.version < 1:
            return f"version {self.version!r}: count from 1"
        for version in range(1, self.version):
            if version not in self.migrations:
                return f"no migration from version {version} to {version + 1}"
        strays = sorted(version for version in self.migrations if version >= self.version)
        return (
            f"migrations from {strays}: they lead past version {self.version}" if strays else None
        )


def migrate(state: msgspec.Raw, schema: StateSchema, *, version: int) -> msgspec.Raw:
    """Return `state`, stored at `version`, in the current shape, or raise `Unencodable`."""
    for step in range(version, schema.version):
        try:
            state = raw(schema.migrations[step](unraw(state)))
        except TypeError as error:
            raise Unencodable(f"state, migrated from version {step}: {error}") from error
    return state
