"""An operation of the JSON API: what it takes, what it gives, and who may ask for it.

Routes, the OpenAPI document, the page of the reference and the tables of tests are all made of the
operations in `vigil/web/api/table.py`: whoever adds one adds a row to a file of
`vigil/web/api/operations/`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from engine.people.identity import Role
from streams.json import raw
from streams.model.triggers import OverrideFailure, Overrides
from vigil.client.page import LIMIT_MAX, Page

if TYPE_CHECKING:
    from vigil.client.client import Client

Method: TypeAlias = Literal["GET", "POST", "PUT", "DELETE"]

READ: Final = "read"
"""The scope of a token that looks."""

PUBLISH: Final = "events:publish"
"""The scope of a token that publishes domain events, and no more."""

PROMPTS: Final = "prompts:read"
"""The scope of a token that reads what models were asked, and journals, which have that, too."""

WAIT_S_MAX: Final = 60.0
"""Longest that a request waits for what it asks, in seconds. Proxies cut off longer ones."""

ITEMS_MAX: Final = 1_000
"""Most things that one request is about."""

After: TypeAlias = Annotated[
    str | None, Meta(description="The `next` of a page: what follows it; left out: the first page.")
]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Most that is returned.")]
Reverse: TypeAlias = Annotated[bool, Meta(description="From the other end of the list.")]
Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
Past: TypeAlias = Annotated[Time | None, Meta(description="As it was then; null: as it is.")]
Words: TypeAlias = Annotated[tuple[str, ...] | None, Meta(description="One, or several.")]
Reason: TypeAlias = Annotated[str, Meta(description="Why; the journal keeps it.")]
Key: TypeAlias = Annotated[
    str | None,
    Meta(description="Idempotency key; the header `Idempotency-Key` says the same."),
]
WaitS: TypeAlias = Annotated[
    Annotated[float, Meta(ge=0, le=WAIT_S_MAX)] | None,
    Meta(description="How long to wait until it is on the journal, in seconds; null: not at all."),
]
DryRun: TypeAlias = Annotated[
    bool | None,
    Meta(description="Whether to change nothing outside; null: only if the token is an agent's."),
]
Keys: TypeAlias = Annotated[tuple[str, ...], Meta(min_length=1, max_length=ITEMS_MAX)]


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request says: fields of its path, and of its query (`GET`, `DELETE`) or body."""


class AskedFailure(ApiRequest, frozen=True, kw_only=True):
    """How a call fails in a dry run."""

    error_class: str
    detail: str = ""


class AskedOverrides(ApiRequest, frozen=True, kw_only=True):
    """What a dry run puts in the place of the outside."""

    tools: dict[str, object] = {}
    """`capability.action` → the result that stands for calling it."""
    failures: dict[str, AskedFailure] = {}
    """`capability.action`, or `synthesis` → how it fails."""
    synthesis: object = None
    """What stands for every synthesis; null: nothing does."""
    persist_findings: str = ""
    """What keys and actor of its findings begin with; empty: none are kept."""

    def overrides(self) -> Overrides:
        """Return the same as the engine has it."""
        return Overrides(
            tools={name: raw(value) for name, value in self.tools.items()},
            failures={
                name: OverrideFailure(error_class=each.error_class, detail=each.detail)
                for name, each in self.failures.items()
            },
            synthesis=raw(self.synthesis),
            persist_findings=self.persist_findings,
        )


class NothingAsked(ApiRequest, frozen=True, kw_only=True):
    """Nothing."""


class AskedOfList(ApiRequest, frozen=True, kw_only=True):
    """What every list that is read page by page takes."""

    after: After = None
    reverse: Reverse = False
    limit: Limit = 50


A = TypeVar("A", bound=ApiRequest)
R = TypeVar("R")


class ListAnswer(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A part of a list."""

    items: Sequence[R]
    next: str | None = None
    """What to give as `after` for the next page; null: this is the last one."""
    why_none: str = ""
    """Why there is nothing, if nothing was ever projected for the stack, or who was asked for has
    never had an episode there; otherwise empty."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are of each."""

    counts: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[A]):
    """A call of the API."""

    name: str
    """As the client's call, such as `episodes.list`; the OpenAPI document has it as the id."""
    method: Method
    path: str
    """Below `/api/v1`; what stands in braces is a field of `asks`."""
    does: str
    """What it does, in one sentence."""
    role: Role = Role.OPERATOR
    """Who has this role, or more, may ask for it."""
    scope: str
    """What the token of a program must be for."""
    asks: type[A]
    gives: object
    """The type of the answer."""
    call: Callable[[Client, A, str], Awaitable[object]]
    """Returns the answer; takes the client, what is asked, and who asks."""
    of_people: bool = False
    """Whether no program may ask for it, whatever its token."""
    key: str = ""
    """The field of `asks` that the header `Idempotency-Key` is another name of; empty: none is,
    and a request with that header is refused."""
    whole: str = ""
    """The field of `asks` that the whole body is, while the others are in the query; empty: the
    body is an object of fields."""
    is_stream: bool = False
    """Whether the answer goes on: server-sent events, each of the type `gives`."""
    commands: Sequence[str] = ()
    """The commands of the command line that do the same."""

    @property
    def has_body(self) -> bool:
        """Whether its fields are in the body; otherwise they are in the query."""
        return self.method in {"POST", "PUT"}

    @cached_property
    def lists(self) -> frozenset[str]:
        """The fields that may be given several times in a query."""
        schema = msgspec.json.schema(self.asks)["$defs"][self.asks.__name__]
        return frozenset(
            name
            for name, field in schema["properties"].items()
            if any(each.get("type") == "array" for each in (field, *field.get("anyOf", ())))
        )

    @property
    def words(self) -> Sequence[str]:
        """The parts of its path between slashes."""
        return self.path.strip("/").split("/")


AnyOperation: TypeAlias = Operation[Any]
"""Any operation."""


def said(asked: ApiRequest, *but: str) -> dict[str, Any]:
    """Return the fields of a request by name, all `but` some, as arguments of a client's call."""
    fields = msgspec.structs.asdict(asked)
    return {
        name: value.overrides() if isinstance(value, AskedOverrides) else value
        for name, value in fields.items()
        if name not in but
    }


async def listed(found: Awaitable[Page[Any] | Iterable[Any]]) -> ListAnswer[Any]:
    """Return what a list of the client returns, without what only commands print."""
    page = await found
    if isinstance(page, Page):
        return ListAnswer(items=page.items, next=page.next, why_none=page.why_none)
    return ListAnswer(items=tuple(page))


async def counted(found: Awaitable[Any]) -> Counts:
    """Return how many there are of each."""
    return Counts(counts=dict(await found))
