"""Saved views: what may be one, and what becomes of somebody's views."""

from __future__ import annotations

import pytest

from engine.errors import BadRequest, Refused
from engine.people.views import (
    LISTS,
    NOT_SAVED,
    VIEW_ADDRESS_CHARS_MAX,
    VIEW_NAME_CHARS_MAX,
    VIEWS_MAX,
    PersonViews,
    decide_views,
    fold_views,
    view_named,
    views_for,
    with_default,
    with_view,
    without_view,
)
from streams.model.events import ViewsSaved
from streams.ports.log import Commit, Recorded
from tests.spec import EPOCH
from vigil.web.drawing.layout import SECTIONS
from vigil.web.screen import AT, PAGING
from vigil.web.table import SCREENS


def view(name="failed", address="/episodes?status=failed", *, is_default=False):
    return view_named(name, address, is_default=is_default)


def test_there_are_views_of_every_list_that_has_filters_and_an_entry():
    entries = {path for path, _ in SECTIONS}
    narrowed = {each.path for each in SCREENS if set(each.filters) - PAGING}
    assert set(LISTS) == narrowed & entries
    assert {*PAGING, AT} == NOT_SAVED


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example/episodes",
        "//evil.example/episodes",
        "/\\evil.example",
        "javascript:alert(1)",
        "/episodes/../login",
        "/episodes/",
        "/episodes#x",
        " /episodes",
        "/episodes\n",
        "/do/people.remove",
        "/login?to=/episodes",
        "",
    ],
)
def test_an_address_that_is_no_list_of_ours_is_refused(address):
    with pytest.raises(BadRequest, match="address"):
        view(address=address)


def test_a_view_is_its_filters_in_order_without_where_and_when_the_page_was():
    asked = "/episodes?status=failed&actor=a%26b&after=x&reverse=1&at=2030-01-01T00:00:00Z&error="
    assert view(address=asked).address == "/episodes?actor=a%26b&status=failed"
    assert view(address="/inbox?after=x").address == "/inbox"


def test_what_a_filter_has_leads_nowhere_else():
    odd = view(address="/findings?actor=x#//evil.example\r\n<b>&status=any").address
    assert odd == "/findings?actor=x%23%2F%2Fevil.example%0D%0A%3Cb%3E&status=any"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("", "/inbox"),
        ("   ", "/inbox"),
        ("x" * (VIEW_NAME_CHARS_MAX + 1), "/inbox"),
        (7, "/inbox"),
        ("x", 7),
        ("x", "/inbox?actor=" + "x" * VIEW_ADDRESS_CHARS_MAX),
        ("x", "/inbox?actor=" + "ä" * (VIEW_ADDRESS_CHARS_MAX // 2)),
        ("x", "/inbox?" + "&".join(f"f{n}=1" for n in range(60))),
    ],
)
def test_names_and_addresses_are_bounded(name, address):
    with pytest.raises(BadRequest):
        view(name, address)


def test_a_view_takes_the_place_of_the_one_of_its_name_and_list():
    views = with_view(with_view((), view()), view("failed", "/outputs"))
    again = with_view(views, view(address="/episodes?status=done"))
    assert [each.address for each in again] == ["/episodes?status=done", "/outputs"]


def test_there_are_so_many_views_and_no_more():
    views = ()
    for number in range(VIEWS_MAX):
        views = with_view(views, view(f"view {number}"))
    with pytest.raises(Refused, match="remove one first"):
        with_view(views, view("one more"))
    assert len(with_view(views, view("view 7", "/episodes?status=done"))) == VIEWS_MAX
    left = without_view(views, "/episodes", "view 7")
    assert len(with_view(left, view("one more"))) == VIEWS_MAX


def test_a_view_is_removed_by_its_name_and_list():
    views = (view(), view("failed", "/outputs"))
    assert without_view(views, "/episodes", "failed") == (view("failed", "/outputs"),)
    assert without_view(views, "/episodes", "none") == views


def defaults(views):
    return [each.name for each in views if each.is_default]


def test_each_list_has_one_default():
    views = with_view((view("a", is_default=True), view("o", "/outputs", is_default=True)), view())
    assert defaults(with_default(views, "/episodes", "failed")) == ["o", "failed"]
    assert defaults(with_default(views, "/episodes", None)) == ["o"]
    assert defaults(with_view(views, view("b", is_default=True))) == ["o", "b"]
    with pytest.raises(BadRequest, match="no saved view"):
        with_default(views, "/outputs", "failed")


def recorded(*commits):
    return [
        Recorded(subject="s", seq=n + 1, commit=Commit(id=f"c{n}", at=EPOCH, events=tuple(events)))
        for n, events in enumerate(commits)
    ]


def decided(found, rule, owner_no=3):
    return decide_views(found, rule, name="ann", owner_no=owner_no)


def test_the_newest_commit_has_all_views():
    first = decided(PersonViews(), lambda views: with_view(views, view()))
    then = decided(fold_views(recorded(first)), lambda views: with_view(views, view("b")))
    assert fold_views(recorded(first, then)) == fold_views(recorded(then))
    assert [each.name for each in fold_views(recorded(then)).views] == ["failed", "b"]


def test_what_changes_nothing_is_not_noted():
    had = PersonViews(owner_no=3, views=(view(),))
    assert decided(had, lambda views: with_view(views, view())) == []
    assert decided(had, lambda views: without_view(views, "/inbox", "x")) == []


def test_who_is_added_again_has_no_views_of_the_one_before():
    had = PersonViews(owner_no=3, views=(view(),))
    assert views_for(had, 3) == (view(),)
    assert views_for(had, 9) == ()
    noted = decided(had, lambda views: with_view(views, view("b")), owner_no=9)
    assert noted == [ViewsSaved(name="ann", views=(view("b"),), owner_no=9)]
