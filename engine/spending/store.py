"""The windows of a stack: read → decide → change the key as it was read.

A reservation takes from all of its windows or from none. One that a crash cuts off in between has
taken from some; the same reference takes nothing from those again, and what never comes again
counts at its most until its windows are over. So no limit is ever passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec

from engine.errors import BudgetExceeded
from engine.runtime.store import Turns
from engine.spending import window as rules
from engine.spending.window import Spent, Window
from engine.validation import backoff_s, jittered_s
from streams.clock import Clock
from streams.errors import RevisionConflict, Unavailable, UnknownOutcome
from streams.ports.bucket import Bucket, BucketEntry

TRIES_MAX: Final = 50
"""Most tries to change a window that other nodes change at the same time: about 20 s."""

CONFLICT_S: Final = 0.01
"""First pause after such a conflict, in seconds; doubles each time."""

CONFLICT_MAX_S: Final = 0.5
"""Longest such pause, in seconds."""


class SpendingContended(Unavailable):
    """Other nodes changed a window `TRIES_MAX` times meanwhile. Repeat the call later."""


@dataclass(frozen=True)
class SpendingStore:
    """The windows of all actors of a stack, and its own, in the gates."""

    gates: Bucket
    clock: Clock
    turns: Turns
    """Of the node: its own requests wait for each other, and never race."""

    async def reserve(self, windows: Sequence[Window], usd: Decimal, *, ref: str) -> None:
        """Take `usd` from every one of `windows`, or from none.

        Call it again with the same `ref`, such as `<episode>:<path>`, after a crash: nothing is
        taken twice.

        Raises:
            BudgetExceeded: one of them has not so much left; nothing is taken.
            SpendingContended: others were faster again and again; repeat it later.
        """
        if len(windows) > 1:  # Whoever is refused should not have taken anything from others.
            for each in windows:
                rules.reserve(await self.spent(each), each, ref, usd)
        taken: list[tuple[Window, Decimal | None]] = []
        for each in windows:
            try:
                taken.append((each, await self._take(each, usd, ref)))
            except BudgetExceeded:
                for earlier, before in reversed(taken):  # guard: refused-takes-from-none
                    await self._change(earlier, ref, _putting_back(ref, before))
                raise

    async def settle(self, windows: Sequence[Window], usd: Decimal | None, *, ref: str) -> None:
        """Put what `ref` has cost in the place of what it has reserved, in those `windows`.

        None: nobody knows what it has cost; then its most counts. Settling twice changes nothing.
        """
        for each in windows:
            await self._change(each, ref, lambda spent: rules.settle(spent, ref, usd))

    async def settle_all(
        self, windows: Sequence[Window], costs: Mapping[str, Decimal | None]
    ) -> None:
        """Settle those of `costs`, reference → cost, for which something is still reserved."""
        for each in windows:
            reserved = (await self.spent(each)).reserved
            for ref in costs.keys() & reserved.keys():
                await self.settle([each], costs[ref], ref=ref)

    async def spent(self, window: Window) -> Spent:
        """Return what is spent in a window, and reserved."""
        return _spent_of(await self.gates.get(window.key), window)

    async def _take(self, window: Window, usd: Decimal, ref: str) -> Decimal | None:
        """Reserve in one window; return what `ref` had reserved there before."""
        before: list[Decimal | None] = []

        def take(spent: Spent) -> Spent:
            before.append(spent.reserved.get(ref))
            return rules.reserve(spent, window, ref, usd)

        await self._change(window, ref, take)
        return before[0]

    async def _change(self, window: Window, ref: str, decide: Callable[[Spent], Spent]) -> None:
        key = window.key
        async with self.turns.of(key):
            for tries in range(1, TRIES_MAX + 1):
                if await self._try_change(window, decide):
                    return
                pause_s = backoff_s(tries, first_s=CONFLICT_S, most_s=CONFLICT_MAX_S)
                await self.clock.sleep(jittered_s(pause_s, seed=f"{ref}.{tries}"))
        raise SpendingContended(key, detail=f"other nodes changed it {TRIES_MAX} times meanwhile")

    async def _try_change(self, window: Window, decide: Callable[[Spent], Spent]) -> bool:
        """Change a window; False: another node was faster, or nobody knows whether it is done."""
        entry = await self.gates.get(window.key)
        spent = _spent_of(entry, window)
        after = decide(spent)
        if after is spent:
            return True
        revision, ttl_s = entry.revision if entry else 0, window.ttl_s(self.clock.now())
        try:
            # guard: window-changed-as-read
            await self.gates.put(window.key, rules.encoded(after), after=revision, ttl_s=ttl_s)
        except (RevisionConflict, UnknownOutcome):  # The next read shows whether it is done.
            return False
        return True


def _putting_back(ref: str, usd: Decimal | None) -> Callable[[Spent], Spent]:
    return lambda spent: rules.put_back(spent, ref, usd)


def _spent_of(entry: BucketEntry | None, window: Window) -> Spent:
    try:
        return rules.spent_in(entry.value if entry is not None else None)
    except msgspec.DecodeError as error:
        # Read as nothing it would let others spend all of it once more.
        why = f"a newer version has written it: {error}"
        raise Unavailable(window.key, detail=why) from error
