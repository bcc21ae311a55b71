"""What orders come to: each about its own thing, noted once, with who, when and why."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.cluster.modes import ModeOrder, PauseOrder
from engine.orders.events import order_given
from engine.orders.order import (
    BreakerOrder,
    CutOrder,
    HoldOrder,
    LayoutOrder,
    LoginOrder,
    RetentionOrder,
    decide,
    fold,
    key_of,
)
from streams.errors import BadName
from streams.model.events import (
    ActorPaused,
    ActorResumed,
    BreakerReset,
    DefinitionDisabled,
    DefinitionKind,
    HoldAdded,
    HoldRemoved,
    LayoutSet,
    LoginRequired,
    LoginWaived,
    NodeModeSet,
    NodeModeUnset,
    RetentionDeclared,
    RowsCut,
)
from streams.model.modes import NodeMode
from streams.model.retention import HoldKind, RetentionCut, RetentionField
from streams.ports.log import Commit, Recorded

AT = datetime(2030, 1, 1, tzinfo=UTC)
FULL, TRIGGER_ONLY, DISABLED = NodeMode.FULL, NodeMode.TRIGGER_ONLY, NodeMode.DISABLED

PAUSED = ActorPaused(actor_id="a", by="ann", reason="deploy")
RESUMED = ActorResumed(actor_id="a", by="bob")
RESET = BreakerReset(actor_id="a", expectation_id="e", by="ann")
MOVED = LayoutSet(partitions=4, by="ann")
REQUIRED = LoginRequired(by="ann", reason="audit")
HELD = HoldAdded(kind=HoldKind.SUBJECT, held="web 1", by="ann", reason="case 7")


def mode_set(mode, actor="", by="ann"):
    return NodeModeSet(node="n1", mode=mode, actor_id=actor, by=by)


def mode_unset(actor="", by="bob"):
    return NodeModeUnset(node="n1", actor_id=actor, by=by)


def recorded(*events):
    commits = (Commit(id=f"c{number}", at=AT, events=(each,)) for number, each in enumerate(events))
    return [Recorded(subject="s", seq=seq, commit=each) for seq, each in enumerate(commits, 1)]


def after(*events):
    return fold(recorded(*events), key=key_of(events[0]))


@pytest.mark.parametrize(
    ("order", "key"),
    [
        (mode_set(FULL, "a"), "mode.n1"),
        (mode_unset(), "mode.n1"),
        (PAUSED, "pause.a"),
        (RESUMED, "pause.a"),
        (RESET, "breaker.a.e"),
        (MOVED, "layout"),
        (REQUIRED, "login"),
        (LoginWaived(by="bob"), "login"),
        (RetentionDeclared(by="n1"), "retention"),
        (RetentionDeclared(actor_id="a", by="n1"), "retention.a"),
        (RowsCut(cuts=(), by="n1"), "cuts"),
        (HELD, "hold.subject.web=201"),
    ],
)
def test_an_order_is_about_one_thing(order, key):
    assert key_of(order) == key


def test_what_is_no_name_is_not_ordered_about():
    with pytest.raises(BadName):
        key_of(ActorPaused(actor_id="a.b", by="ann"))


def test_a_mode_of_the_node_keeps_those_of_its_actors():
    both = after(mode_set(DISABLED, "a"), mode_set(TRIGGER_ONLY, by="bob"))

    assert both == ModeOrder(mode=TRIGGER_ONLY, actors={"a": DISABLED}, by="bob", at=AT, order_no=2)


def test_a_mode_of_an_actor_keeps_that_of_the_node():
    both = after(mode_set(FULL), mode_set(DISABLED, "a"))

    assert (both.mode, both.actors) == (FULL, {"a": DISABLED})


def test_taking_back_the_mode_of_a_node_leaves_nothing_and_of_an_actor_the_rest():
    both = (mode_set(FULL), mode_set(DISABLED, "a"))

    assert after(*both, mode_unset()) == ModeOrder(by="bob", at=AT, order_no=3)
    assert not after(*both, mode_unset()).holds
    rest = after(*both, mode_unset("a"))
    assert (rest.mode, rest.actors, rest.holds) == (FULL, {}, True)


def test_a_pause_says_by_whom_and_why_until_it_is_over():
    assert after(PAUSED) == PauseOrder(by="ann", reason="deploy", at=AT, order_no=1)
    assert after(PAUSED, RESUMED) == PauseOrder(is_over=True, by="bob", at=AT, order_no=2)
    assert after(PAUSED, RESUMED, PAUSED).holds


def test_the_newest_reset_and_the_newest_layout_are_known():
    assert after(RESET, RESET) == BreakerOrder(newest="c1", by="ann", at=AT, order_no=2)
    assert after(MOVED).partitions == 4


@pytest.mark.parametrize(
    ("given", "again"),
    [
        ([mode_set(FULL)], mode_set(FULL, by="bob")),
        ([mode_set(FULL, "a")], mode_set(FULL, "a", by="bob")),
        ([mode_set(FULL, "a")], mode_unset("b")),
        ([mode_set(FULL), mode_unset()], mode_unset()),
        ([PAUSED], PAUSED),
        ([PAUSED, RESUMED], RESUMED),
        ([MOVED], MOVED),
    ],
)
def test_what_is_so_already_is_not_ordered_again(given, again):
    assert decide(after(*given), again) == ()


@pytest.mark.parametrize("first", [mode_unset(), mode_unset("a"), RESUMED])
def test_what_nobody_has_ordered_cannot_be_taken_back(first):
    assert decide(fold([], key=key_of(first)), first) == ()


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ([], mode_set(FULL)),
        ([mode_set(FULL)], mode_set(FULL, "a")),
        ([mode_set(FULL, "a")], mode_unset()),
        ([PAUSED], ActorPaused(actor_id="a", by="ann", reason="another")),
        ([PAUSED], RESUMED),
        ([RESET], RESET),
        ([], MOVED),
        ([MOVED], LayoutSet(partitions=1, by="ann")),
    ],
)
def test_what_changes_anything_is_noted(given, order):
    assert decide(fold(recorded(*given), key=key_of(order)), order) == (order,)


def test_what_is_no_order_changes_nothing():
    other = DefinitionDisabled(kind=DefinitionKind.AGENT, id="a", revision=1, by="ann")

    assert fold(recorded(PAUSED, other), key="pause.a") == after(PAUSED)
    assert fold([], key="layout") == LayoutOrder()


def test_the_world_is_told_who_ordered_what_and_why():
    told = order_given(PAUSED, seq=7, number=0)

    assert (told.name, told.id, told.hops) == ("actor.paused", "order.pause.a.7.0", 1)
    assert told.payload == {
        "actor_id": "a",
        "by": "ann",
        "reason": "deploy",
        "journal_seq": 7,
    }


def test_that_people_have_to_sign_in_is_noted_once_and_so_is_that_they_need_not():
    waived = LoginWaived(by="bob")
    assert decide(LoginOrder(), waived) == ()
    assert decide(LoginOrder(), REQUIRED) == (REQUIRED,)
    required = after(REQUIRED)
    assert (required.is_required, required.by, required.reason) == (True, "ann", "audit")
    assert decide(required, REQUIRED) == ()
    assert not after(REQUIRED, waived).is_required


def test_what_is_held_is_held_once_and_again_once_it_is_let_go():
    removed = HoldRemoved(kind=HoldKind.SUBJECT, held="web 1", by="bob")
    assert decide(HoldOrder(), removed) == ()
    held = after(HELD)
    assert (held.kind, held.held, held.is_over) == (HoldKind.SUBJECT, "web 1", False)
    assert decide(held, HELD) == ()
    gone = after(HELD, removed)
    assert gone.is_over
    assert decide(gone, HELD) == (HELD,)


def test_what_is_kept_and_what_is_cut_is_noted_when_it_changes():
    declared = RetentionDeclared(kept_s={"done": 86_400}, by="n1")
    assert decide(RetentionOrder(), declared) == (declared,)
    assert after(declared).kept_s == {"done": 86_400}
    assert decide(after(declared), declared) == ()
    cut = RowsCut(cuts=(RetentionCut(what=RetentionField.DONE, before=AT),), by="n1")
    assert decide(CutOrder(), cut) == (cut,)
    assert decide(after(cut), cut) == ()
