"""The actors of the themes: each way to be woken, each limit, and as little else as can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from tests.simulation import asking, calling, deploying, flowing, sending
from tests.simulation.strategies import Glance, Plan, Quiet, Sum, watch_for
from tests.simulation.themes import Theme
from vigil import (
    Action,
    Actor,
    Breaker,
    Context,
    Failure,
    StepTaken,
    approval,
    converge,
    cron,
    event,
    every,
    manual,
    output,
    tool_call,
    wait,
)

EVERY_S: Final[Mapping[str, int]] = {"tick_all": 20, "tick_one": 30, "tick_skip": 80}
"""Expectation → between two of its ticks. The longest can be missed for over a minute."""

COOLDOWN_S: Final = 12
DEBOUNCE_S: Final = 4.0
MAX_WAIT_S: Final = 9.0
SAMPLE: Final = 0.5
THRESHOLD: Final = 2
HALF_OPEN_S: Final = 10.0
START_WITHIN_S: Final = 3.0

ORDERS: Final = "ORDERS"
"""The stream that is not ours."""

CLUSTER_MAX: Final[Mapping[str, int]] = {
    "turns": 2,
    "drops": 1,
    "sheds": 1,
    **asking.CLUSTER_MAX,
    **sending.CLUSTER_MAX,
    **flowing.CLUSTER_MAX,
}
"""Actor that takes turns → how many of its episodes run at a time in the whole cluster."""

SHED_QUEUE_MAX: Final = 2

OVERLAPS: Final[Mapping[str, str]] = {
    "held": "skip",
    "kept": "buffer_one",
    "newest": "cancel_other",
}
"""Expectation → what an event does while an episode of its subject is open."""


class Trying(Plan):
    """Calls the shop, and breaks down where that fails."""

    def next_step(self, state: Sum, ctx: Context) -> Action:
        return converge() if state.done else tool_call("shop", "buy", {})

    def handle_result(self, state: Sum, step: StepTaken, result: object) -> Sum:
        if isinstance(result, Failure):
            raise TypeError("the shop is shut")
        return super().handle_result(state, step, result)


def _ticks() -> Iterator[Actor]:
    clock = Actor("clock", max_concurrent_episodes=2)
    watch_for(clock, "tick_all", Quiet(), on=every(EVERY_S["tick_all"], catch_up="all"))
    watch_for(clock, "tick_one", Quiet(), on=every(EVERY_S["tick_one"], catch_up="one"))
    watch_for(clock, "tick_skip", Quiet(), on=every(EVERY_S["tick_skip"], catch_up="skip"))
    watch_for(clock, "tick_cron", Quiet(), on=cron("* * * * *", catch_up="all"))
    yield clock


def _cooldown() -> Iterator[Actor]:
    rested = Actor("rested")
    watch_for(rested, "cool", Quiet(), subject_key="key", cooldown_s=COOLDOWN_S)
    watch_for(rested, "sampled", Quiet(), on=event("sim.cool"), sample=SAMPLE)
    yield rested
    alone, slow = Actor("alone"), tool_call("slow", "wait", {})
    for name, overlap in OVERLAPS.items():
        of_key = {"on": event("sim.cool"), "subject_key": "key", "overlap": overlap}
        watch_for(alone, name, Plan(slow), **of_key)
    yield alone


def _calm() -> Iterator[Actor]:
    patient = Actor("patient")
    watch_for(patient, "calm", Quiet(), subject_key="key", debounce_s=DEBOUNCE_S)
    soon = {"debounce_s": DEBOUNCE_S, "max_wait_s": MAX_WAIT_S}
    watch_for(patient, "soon", Quiet(), on=event("sim.calm"), subject_key="key", **soon)
    yield patient


def _breaker() -> Iterator[Actor]:
    fused = Actor("fused")
    soft = Breaker(threshold=THRESHOLD, half_open_after_s=HALF_OPEN_S)
    watch_for(fused, "trip", Trying(), breaker=soft)
    hard = msgspec.structs.replace(soft, cancel_in_flight=True)
    watch_for(fused, "trip_hard", Trying(), on=event("sim.trip"), breaker=hard)
    yield fused


def _fires() -> Iterator[Actor]:
    hand = Actor("hand")
    look, pay = tool_call("look", "up", {}), tool_call("pay", "out", {})
    watch_for(hand, "asked", Plan(look, pay), on=manual())
    others = approval({"n": 1}), wait("nobody:says"), output("post", {"n": 1})
    watch_for(hand, "tried", Plan(look, pay, *others), on=manual())
    yield hand


def _feed() -> Iterator[Actor]:
    reader = Actor("reader")
    watch_for(reader, "order", Quiet(), on=event(stream=ORDERS, subject="orders.>", start="all"))
    yield reader


def _haste() -> Iterator[Actor]:
    hasty = Actor("hasty", max_concurrent_episodes=1)
    slow = tool_call("slow", "wait", {})
    watch_for(hasty, "hurry", Plan(slow), start_within_s=START_WITHIN_S)
    yield hasty


def _lanes() -> Iterator[Actor]:
    look = tool_call("slow", "wait", {})
    turns = Actor("turns", max_concurrent_cluster=CLUSTER_MAX["turns"], max_concurrent_episodes=2)
    watch_for(turns, "turn", Plan(look), concurrency_key="key")
    watch_for(turns, "urgent", Plan(look), priority=5)
    watch_for(turns, "glance", Glance(look), on=event("sim.turn"), concurrency_key="key")
    yield turns
    drops = Actor("drops", max_concurrent_cluster=CLUSTER_MAX["drops"], overflow="drop")
    watch_for(drops, "lucky", Plan(look), on=event("sim.turn"))
    yield drops
    sheds = Actor(
        "sheds",
        max_concurrent_cluster=CLUSTER_MAX["sheds"],
        overflow="shed_oldest",
        queue_max=SHED_QUEUE_MAX,
    )
    watch_for(sheds, "latest", Plan(look), on=event("sim.turn", "sim.urgent"))
    yield sheds


ACTORS: Final[Mapping[Theme, Callable[[], Iterator[Actor]]]] = {
    Theme.TICKS: _ticks,
    Theme.COOLDOWN: _cooldown,
    Theme.CALM: _calm,
    Theme.BREAKER: _breaker,
    Theme.FIRES: _fires,
    Theme.FEED: _feed,
    Theme.HASTE: _haste,
    Theme.LANES: _lanes,
    Theme.APPROVALS: asking.askers,
    Theme.WAITS: asking.waiters,
    Theme.OUTPUTS: sending.senders,
    Theme.WORKFLOWS: flowing.steppers,
    Theme.DEFINITIONS: lambda: iter(()),
    Theme.FUNCTIONS: calling.callers,
}
"""Theme → the actors that it brings, but for what is defined as data."""

_DONE: Final = ("done", "")
_CRASHED: Final = ("failed", "crash")

_ALWAYS_DONE: Final = (
    "tick_all", "tick_one", "tick_skip", "tick_cron", "cool", "sampled", "calm", "soon",
    "asked", "tried", "order", "turn", "urgent", "glance",
)  # fmt: skip

ENDS: Final = {
    **{name: {_DONE} for name in _ALWAYS_DONE},
    "trip": {_DONE, _CRASHED},
    "trip_hard": {_DONE, _CRASHED, ("canceled", "circuit_breaker_tripped")},
    "hurry": {_DONE, ("canceled", "expired")},
    **{name: {_DONE, ("canceled", "shed_oldest")} for name in ("lucky", "latest")},
    **{name: {_DONE, ("canceled", "overlap")} for name in ("held", "kept")},
    "newest": {_DONE, ("canceled", "overlap"), ("canceled", "canceled")},
    **asking.ENDS,
    **sending.ENDS,
    **flowing.ENDS,
    **calling.ENDS,
    **deploying.ENDS,
}
"""Expectation → how its episodes may end."""
