"""The actors that have something delivered: with what they find, or as a step on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from streams.model.outputs import OutputIntent
from tests.simulation.asking import APPROVERS, BOTH, TWO_OF_THREE
from tests.simulation.strategies import Plan, Planned, Sum, watch_for
from vigil import (
    Action,
    Actor,
    Context,
    ConvergeResult,
    done,
    event,
    output,
    propose_output,
    tool_call,
)

CLUSTER_MAX: Final[Mapping[str, int]] = {"sends_turn": 1}
"""Actor that takes turns → how many of its episodes run at a time in the whole cluster."""

_LOOK: Final = tool_call("look", "up", {})

Wish: TypeAlias = Callable[[Sum], OutputIntent]
"""What makes an output of the state."""


class Sending(Plan):
    """Takes the steps of a list, and converges with outputs besides its finding."""

    def __init__(self, *steps: Planned, outputs: Sequence[Wish] = ()) -> None:
        super().__init__(*steps)
        self._outputs = outputs

    def converge(self, state: Sum, ctx: Context) -> ConvergeResult:
        result = super().converge(state, ctx)
        return replace(result, outputs=[wish(state) for wish in self._outputs])


class Sent(Plan):
    """Has nothing to say once its steps are taken."""

    def next_step(self, state: Sum, ctx: Context) -> Action:
        is_over = len(state.done) == len(self._steps)
        return done() if is_over else super().next_step(state, ctx)


class Breaking(Plan):
    """Raises once its steps are taken."""

    def next_step(self, state: Sum, ctx: Context) -> Action:
        if len(state.done) == len(self._steps):
            raise RuntimeError("broken on purpose")
        return super().next_step(state, ctx)


def _wish(adapter: str, **said: object) -> Wish:
    return lambda state: propose_output(adapter, {"total": state.total}, **said)  # type: ignore[arg-type]


def _alert(state: Sum) -> OutputIntent:
    """Return what is delivered once for each key, whichever episode wants it."""
    return propose_output("mail", {"alert": state.key}, dedupe_key=f"alert/{state.key}")


def _send(adapter: str, **said: object) -> Planned:
    return lambda state: output(adapter, {"total": state.total}, **said)  # type: ignore[arg-type]


def senders() -> Iterator[Actor]:
    """Yield the actors that have something delivered."""
    sender = Actor("sender", max_concurrent_episodes=3)
    send, inline, gated = event("sim.send"), event("sim.inline"), event("sim.gated")
    both = _wish("post"), _wish("mail", key="own"), _wish("mail")
    watch_for(sender, "send", Sending(_LOOK, outputs=both), on=send)
    watch_for(sender, "send_once", Sending(outputs=(_alert,)), on=send)
    asks = {"requires_approval": True}
    denied = _wish("mail", **asks, approvers=APPROVERS, expires_s=12, remind_every_s=5)
    approved = _wish("mail", **asks, expires_s=8, on_expiry="approve")
    failed = _wish("post", **asks, expires_s=9, on_expiry="fail", key="late")
    both = _wish("mail", **asks, **BOTH, expires_s=18, key="both")
    outputs = denied, approved, failed, both, _wish("post")
    watch_for(sender, "gated", Sending(outputs=outputs), on=gated)
    ever = _wish("post", **asks, remind_every_s=6), _wish("mail", **asks, **TWO_OF_THREE)
    watch_for(sender, "gated_ever", Sending(outputs=ever), on=gated)
    watch_for(sender, "inline", Sent(_LOOK, _send("mail"), _LOOK), on=inline)
    asked = _send("post", **asks, expires_s=10, on_expiry="approve")
    both = _send("mail", key="own"), asked, _LOOK
    watch_for(sender, "inline_too", Sending(*both, outputs=(_wish("mail"),)), on=inline)
    watch_for(sender, "breaking", Breaking(_LOOK, _send("mail"), asked), on=inline)
    yield sender
    turn = Actor("sends_turn", max_concurrent_cluster=CLUSTER_MAX["sends_turn"])
    watch_for(turn, "send_turn", Sending(_LOOK, _send("mail"), outputs=(approved,)))
    yield turn


_DONE: Final = ("done", "")
_SENT: Final = {
    _DONE, ("partially_failed", ""), ("failed", "all_outputs_failed"), ("canceled", "canceled"),
}  # fmt: skip

ENDS: Final = {
    **dict.fromkeys(("send", "send_once", "inline", "inline_too", "send_turn"), _SENT),
    **dict.fromkeys(("gated", "gated_ever"), _SENT),
    "breaking": {("failed", "crash"), ("canceled", "canceled")},
}
"""Expectation → how its episodes may end."""
