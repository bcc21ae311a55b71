"""The actors that wait: for people who are to approve something, and for word from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from engine.app.strategy import Handled
from tests.simulation.strategies import Plan, Planned, Sum, watch_for
from vigil import (
    Action,
    Actor,
    EpisodeView,
    Failure,
    StepTaken,
    Trigger,
    abort,
    approval,
    event,
    tool_call,
    wait,
)

APPROVERS: Final = ("ada", "bob")
"""Who may approve, where only some may."""

BOTH: Final[Mapping[str, Any]] = {"approvers": APPROVERS, "quorum": 2}
"""Terms of what both of them have to approve."""

TWO_OF_THREE: Final[Mapping[str, Any]] = {"quorum": 2, "remind_every_s": 6}
"""Terms of what two have to approve, whoever they are."""


CLUSTER_MAX: Final[Mapping[str, int]] = {"asks_turn": 1, "waits_turn": 1}
"""Actor that takes turns → how many of its episodes run at a time in the whole cluster."""

ROW: Final = "row"
"""Begins the references of those that wait several times in a row."""

ROW_WAITS: Final = 3

_LOOK: Final = tool_call("look", "up", {})
_PAY: Final = tool_call("pay", "out", {"n": 1})


class Asking(Plan):
    """Does without what it is denied, or does not get in time, and gives up unless it is easy."""

    def __init__(self, *steps: Planned, is_easy: bool = False) -> None:
        super().__init__(*steps)
        self._is_easy = is_easy

    def handle_result(self, state: Sum, step: StepTaken, result: object) -> Handled[Sum]:  # type: ignore[override]
        """Go straight to the end if the answer is no; an easy one is content with that."""
        if not isinstance(result, Failure):
            return super().handle_result(state, step, result)
        if not self._is_easy:
            return abort(result.error_class, result.detail)
        taken = len(self._steps) - len(state.done)
        return Sum(
            kind=state.kind, key=state.key, total=state.total, done=[*state.done, *"-" * taken]
        )


class InARow(Plan):
    """Waits again and again for what is its episode's own; its signals come in a burst."""

    def __init__(self) -> None:
        super().__init__(*[_word(ROW)] * ROW_WAITS)

    def init(self, episode: EpisodeView, trigger: Trigger) -> Sum:
        """Have a key that no other episode has."""
        return Sum(kind=episode.expectation_id, key=episode.episode_id)


def _plan(**terms: object) -> Callable[[Sum], Action]:
    """Return what asks people about a plan that is the episode's own."""
    return lambda state: approval({"pay": state.key, "after": state.total}, **terms)  # type: ignore[arg-type]


def _word(name: str, **terms: object) -> Callable[[Sum], Action]:
    """Return what waits for word about what the episode is about; others wait for the same."""
    return lambda state: wait(f"{name}:{state.key}", **terms)  # type: ignore[arg-type]


def askers() -> Iterator[Actor]:
    """Yield the actors that ask people."""
    asker = Actor("asker", max_concurrent_episodes=2)
    asked = event("sim.ask")
    may = {"approvers": APPROVERS}
    watch_for(
        asker,
        "ask_deny",
        Asking(_LOOK, _plan(**may, expires_s=12, remind_every_s=5), _PAY),
        on=asked,
    )
    fails = _plan(expires_s=8, on_expiry="fail")
    watch_for(asker, "ask_fail", Asking(_LOOK, fails, _PAY), on=asked)
    watch_for(asker, "ask_easy", Asking(_plan(expires_s=10), _PAY, is_easy=True), on=asked)
    twice = _plan(expires_s=9, on_expiry="approve"), _PAY, _plan(remind_every_s=7)
    watch_for(asker, "ask_twice", Asking(*twice), on=asked)
    both = _plan(**BOTH, expires_s=18, on_expiry="fail")
    watch_for(asker, "ask_both", Asking(both, _PAY, _plan(**TWO_OF_THREE)), on=asked)
    yield asker
    turn = Actor("asks_turn", max_concurrent_cluster=CLUSTER_MAX["asks_turn"])
    watch_for(turn, "ask_turn", Asking(_LOOK, _plan(expires_s=10, on_expiry="approve"), _LOOK))
    yield turn


def waiters() -> Iterator[Actor]:
    """Yield the actors that wait for word from outside."""
    waiter = Actor("waiter", max_concurrent_episodes=2)
    waited = event("sim.wait")
    watch_for(waiter, "wait_fail", Asking(_word("paid", expires_s=10), _PAY), on=waited)
    on = _word("sent", expires_s=8, on_expiry="continue", remind_every_s=3)
    watch_for(waiter, "wait_on", Asking(_LOOK, on), on=waited)
    ever = _word("paid"), _LOOK, _word("sent", remind_every_s=6)
    watch_for(waiter, "wait_ever", Asking(*ever), on=waited)
    watch_for(waiter, "wait_row", InARow(), on=event("sim.row"))
    yield waiter
    turn = Actor("waits_turn", max_concurrent_cluster=CLUSTER_MAX["waits_turn"])
    watch_for(turn, "wait_turn", Asking(_LOOK, _word("paid"), _LOOK))
    yield turn


_DONE: Final = ("done", "")
_DENIED: Final = ("canceled", "denied")
_CANCELED: Final = ("canceled", "canceled")

ENDS: Final = {
    "ask_deny": {_DONE, _DENIED, _CANCELED},
    "ask_fail": {_DONE, _DENIED, ("failed", "approval_expired"), _CANCELED},
    "ask_easy": {_DONE, _CANCELED},
    "ask_twice": {_DONE, _DENIED, _CANCELED},
    "ask_both": {_DONE, _DENIED, ("failed", "approval_expired"), _CANCELED},
    "ask_turn": {_DONE, _DENIED, _CANCELED},
    "wait_fail": {_DONE, ("failed", "wait_expired"), _CANCELED},
    "wait_on": {_DONE, _CANCELED},
    "wait_ever": {_DONE, _CANCELED},
    "wait_turn": {_DONE, _CANCELED},
    "wait_row": {_DONE},
}
"""Expectation → how its episodes may end."""
