"""What a screen is: who may see it, and how it is drawn of what was asked. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlencode

import msgspec
from htpy import Node

from engine.people.identity import Role

if TYPE_CHECKING:
    from vigil.client import Client

PAGE_ROWS: Final = 50
"""Rows of a list on one page."""

PAGING: Final = frozenset({"after", "reverse"})
"""What says where in a list a page is; another filter begins the list anew."""


AT: Final = "at"
"""The filter of all pages that says at which time they are."""


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has asked for: the address of a page, and who asks."""

    path: str
    """As it was asked for, such as `/episodes`."""
    words: Mapping[str, str] = {}
    """What the path has where its pattern has a name, such as `id`."""
    filters: Mapping[str, str] = {}
    """The query of the address, without what is empty. Of what stands twice, the last counts."""
    role: Role
    """What whoever asks may do: buttons that are not for them are not drawn."""
    now: datetime
    """The time of the page: ages on it are as of then."""
    asked_at: datetime
    """When it was asked for."""
    at: datetime | None = None
    """The time past at which the page is; None: it is of now."""

    def filter(self, name: str) -> str | None:
        """Return what a filter is set to; None: it is not."""
        return self.filters.get(name) or None

    def link(self, **changes: str | None) -> str:
        """Return the address of this page with other filters, from the first page on.

        A filter that is None is left out; one that says where in a list the page is stays only if
        it is among the changes.
        """
        kept = {name: text for name, text in self.filters.items() if name not in PAGING}
        return address(self.path, **{**kept, **changes})


def address(path: str, **filters: str | None) -> str:
    """Return a path with these filters; those that are None or empty are left out."""
    said = {name.removesuffix("_"): text for name, text in filters.items() if text}
    return f"{path}?{urlencode(said)}" if said else path


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A page, as it was drawn for one moment."""

    title: str
    parts: Mapping[str, Node]
    """Name → a part of the page. While it is watched, those that have changed are sent anew."""
    side: Collection[str] = ()
    """The names of the parts that stand beside the others where there is room."""
    beside: Node = None
    """What stands beside the title."""
    up: tuple[str, str] | None = None
    """The address and the title of the page that this one is below; None: it is below none."""


Draw: TypeAlias = "Callable[[Client, PageRequest], Awaitable[Drawn]]"


@dataclass(frozen=True, kw_only=True)
class Screen:
    """A page of the console."""

    path: str
    """The pattern of its address, such as `/episodes/{id}`."""
    draw: Draw
    section: str = ""
    """The address of the entry of the navigation that it belongs to; empty: none."""
    role: Role = Role.VIEWER
    """Who may see it."""
    is_live: bool = True
    """Whether it is drawn anew while it is watched. What people fill in is not."""
    has_past: bool = False
    """Whether it can be drawn as it was at a time; others then say that they are of now."""
    orders: bool = False
    """Whether it is there to order something, which nobody does in the past."""
    is_form: bool = False
    """Whether a form of it is sent to itself, to see what would come of it; that has any fields."""
    filters: Collection[str] = field(default=())
    """The filters that it knows; others are left out of its address."""
