"""Loop detection: whether an episode repeats itself without effect. Pure.

The last steps are a loop when they are one short cycle of equal actions with equal results,
repeated `ROUNDS` times, and no tokens were spent: a model that thinks between equal actions may
change its mind, a rule will not. Only the newest steps count, so a loop is found however much
useful work came before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

CYCLE_STEPS_MAX: Final = 4
"""Longest cycle looked for, in steps."""

ROUNDS: Final = 3
"""Equal rounds that make a loop."""

WINDOW_STEPS: Final = CYCLE_STEPS_MAX * ROUNDS
"""How many of the newest steps are compared."""


class Trace(msgspec.Struct, frozen=True):
    """One step, for loop detection."""

    fingerprint: str
    tokens_total: int
    """Tokens the episode had used after the step."""
    outcome: bytes = b""
    """Digest of its result: an equal action with another result is no loop."""


def find_loop(traces: Sequence[Trace]) -> tuple[str, ...]:
    """Return the fingerprints of the cycle that `traces`, oldest first, end in; empty for none."""
    for cycle_steps in range(1, CYCLE_STEPS_MAX + 1):
        tail = traces[-cycle_steps * ROUNDS :]
        if len(tail) == cycle_steps * ROUNDS and _goes_round(tail, cycle_steps):
            return tuple(trace.fingerprint for trace in tail[:cycle_steps])
    return ()


def _goes_round(tail: Sequence[Trace], cycle_steps: int) -> bool:
    thinking = tail[0].tokens_total != tail[-1].tokens_total
    return not thinking and all(
        _mark(trace) == _mark(tail[index % cycle_steps]) for index, trace in enumerate(tail)
    )


def _mark(trace: Trace) -> tuple[str, bytes]:
    return trace.fingerprint, trace.outcome
