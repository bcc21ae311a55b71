"""The saved views of whoever looks at a list: links to them, and forms that save and remove. Pure.

They are of one person, and so stand around the parts of a page, which all who watch it share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from htpy import Element, Node, a, details, div, label, li, nav, p, summary, ul
from htpy import input as entry

from engine.people.views import LISTS, VIEW_NAME_CHARS_MAX, list_of, view_address
from streams.model.people import SavedView
from vigil.web.drawing.parts import act, tick
from vigil.web.screen import PageRequest

UNKNOWN: Final = "Your saved views are not known now: a server is away."


def default_addresses(views: Sequence[SavedView] | None) -> Mapping[str, str]:
    """Return the path of a list → the address of the view that its entry leads to."""
    return {list_of(each): each.address for each in views or () if each.is_default}


def views_bar(asked: PageRequest | None, views: Sequence[SavedView] | None) -> Node:
    """Return the saved views of a list, with forms for them; None: the page is no list.

    Of a time past there are the links alone. `views` is None if nobody knows them now.
    """
    if asked is None or asked.path not in LISTS:
        return None
    if views is None:
        return p(".muted")[UNKNOWN]
    here = view_address(asked.path, dict(asked.filters))
    of_list = [each for each in views if list_of(each) == asked.path]
    is_now = asked.at is None  # guard: past-saves-no-view
    return div(".views")[
        _links(asked.path, of_list, here),
        is_now and _saving(here),
        is_now and _changing(asked.path, of_list),
    ]


def _links(path: str, views: Sequence[SavedView], here: str) -> Node:
    if not views:
        return None
    return nav(".chips", aria_label="Saved views")[
        a(href=path, aria_current=here == path and "true")["All"],
        (
            a(href=each.address, aria_current=here == each.address and "true")[each.name]
            for each in views
        ),
    ]


def _saving(here: str) -> Element:
    name = label[
        "Name",
        entry(name="name", required=True, maxlength=str(VIEW_NAME_CHARS_MAX), autocomplete="off"),
    ]
    return details[
        summary["Save this view"],
        act(
            "people.save_view",
            "Save",
            {"address": here},
            name,
            tick("is_default", "My default for this list"),
            is_whole=True,
        ),
    ]


def _changing(path: str, views: Sequence[SavedView]) -> Node:
    if not views:
        return None
    return details[summary["Change saved views"], ul[(li[_change(path, each)] for each in views)]]


def _change(path: str, view: SavedView) -> list[Node]:
    named = {"page": path, "name": view.name}
    if view.is_default:
        choosing = act("people.set_default_view", "Default no more", {"page": path}, is_whole=True)
    else:
        choosing = act("people.set_default_view", "Make it my default", named, is_whole=True)
    return [view.name, choosing, act("people.remove_view", "Remove", named, is_whole=True)]
