"""The saved views of one person: lists of the console with filters, each under a name. Pure.

Each commit has all of them, so only the newest is ever read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec.structs import replace

from engine.errors import BadRequest, Refused
from engine.validation import check_text
from streams.model.events import ViewsSaved
from streams.model.people import SavedView
from streams.ports.log import Recorded

LISTS: Final = (
    "/inbox",
    "/episodes",
    "/findings",
    "/outputs",
    "/workflows",
    "/events",
    "/costs",
    "/definitions",
    "/dead-letters",
    "/orders",
    "/people",
)
"""The pages of the console that are narrowed by their address, and stand in its navigation."""

NOT_SAVED: Final = frozenset({"after", "reverse", "at"})
"""What an address says about where in a list and at which time a page is: no view has it."""

VIEWS_MAX: Final = 50
"""Saved views of one person."""

VIEW_NAME_CHARS_MAX: Final = 80

VIEW_ADDRESS_CHARS_MAX: Final = 2_000

FILTERS_MAX: Final = 50
"""Most filters in one address."""


class PersonViews(msgspec.Struct, frozen=True, kw_only=True):
    """The saved views of one person, in the order in which they were first saved."""

    owner_no: int = 0
    """The change of the people by which their owner was added; 0: nobody among them."""
    views: tuple[SavedView, ...] = ()


ViewsRule: TypeAlias = Callable[[Sequence[SavedView]], tuple[SavedView, ...]]
"""Returns the views of somebody after a change."""


def view_named(name: str, address: str, *, is_default: bool) -> SavedView:
    """Return a view of a list of ours; raise `BadRequest` if it cannot be called so or is of none.

    Its address is made anew of the list and its filters, in order, so that it leads nowhere else.
    """
    check_text("name", name, least=1, most=VIEW_NAME_CHARS_MAX)
    called = name.strip()
    check_text("name", called, least=1, most=VIEW_NAME_CHARS_MAX)
    check_text("address", address, least=1, most=VIEW_ADDRESS_CHARS_MAX)
    path, _, query = address.partition("?")
    if path not in LISTS:  # guard: views-of-own-lists
        problem = f"{path!r:.120} is no list; use {', '.join(LISTS)}"
        raise BadRequest(field="address", problem=problem)
    try:
        filters = dict(parse_qsl(query, max_num_fields=FILTERS_MAX))
    except ValueError as error:
        raise BadRequest(field="address", problem=f"more than {FILTERS_MAX} filters") from error
    made = view_address(path, filters)
    check_text("address", made, least=1, most=VIEW_ADDRESS_CHARS_MAX)
    return SavedView(name=called, address=made, is_default=is_default)


def view_address(path: str, filters: dict[str, str]) -> str:
    """Return the address of a list with these filters, as views have it."""
    # guard: views-forget-the-page
    said = {name: text for name, text in filters.items() if name not in NOT_SAVED}
    kept = sorted((name, text) for name, text in said.items() if text)
    return f"{path}?{urlencode(kept)}" if kept else path


def list_of(view: SavedView) -> str:
    """Return the path of the list that a view is of."""
    return view.address.partition("?")[0]


def with_view(views: Sequence[SavedView], view: SavedView) -> tuple[SavedView, ...]:
    """Return views with another one, in the place of the one of that name and that list.

    Raises:
        Refused: there are as many as there may be.
    """
    key = (list_of(view), view.name)
    if all((list_of(each), each.name) != key for each in views):
        if len(views) >= VIEWS_MAX:  # guard: saved-views-max
            raise Refused(f"there may be {VIEWS_MAX} saved views: remove one first")
        views = (*views, view)
    # guard: one-default-per-list
    others = _with_default(views, key[0], None) if view.is_default else views
    return tuple(view if (list_of(each), each.name) == key else each for each in others)


def without_view(views: Sequence[SavedView], path: str, name: str) -> tuple[SavedView, ...]:
    """Return views without the one of that list and name."""
    return tuple(each for each in views if (list_of(each), each.name) != (path, name))


def with_default(views: Sequence[SavedView], path: str, name: str | None) -> tuple[SavedView, ...]:
    """Return views of which that one is the default of its list; None: none is.

    Raises:
        BadRequest: there is none of that name.
    """
    if name is not None and all((list_of(each), each.name) != (path, name) for each in views):
        raise BadRequest(field="name", problem=f"{path} has no saved view {name!r:.120}")
    return _with_default(views, path, name)


def _with_default(views: Sequence[SavedView], path: str, name: str | None) -> tuple[SavedView, ...]:
    return tuple(
        replace(each, is_default=each.name == name) if list_of(each) == path else each
        for each in views
    )


def fold_views(records: Sequence[Recorded]) -> PersonViews:
    """Return the views of somebody; of all commits the newest is enough."""
    found = PersonViews()
    for record in records:
        for event in record.commit.events:
            if isinstance(event, ViewsSaved):
                found = PersonViews(owner_no=event.owner_no, views=event.views)
    return found


def views_for(found: PersonViews, owner_no: int) -> tuple[SavedView, ...]:
    """Return the views of whoever was added by that change; another one of that name has none."""
    return found.views if found.owner_no == owner_no else ()  # guard: views-of-who-was-added


def decide_views(
    found: PersonViews, rule: ViewsRule, *, name: str, owner_no: int
) -> list[ViewsSaved]:
    """Return what is to be noted of a change of somebody's views; nothing if it changes nothing."""
    before = views_for(found, owner_no)
    after = rule(before)
    if after == before:  # guard: same-views-noted-once
        return []
    return [ViewsSaved(name=name, views=after, owner_no=owner_no)]
