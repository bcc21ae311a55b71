"""Slots: a limit on how many run at a time, which several consumers may share."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """Slots for work, given in the order of waiting."""

    def __init__(self, most: int) -> None:
        self._most = self._free = most
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._freed = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    @property
    def free(self) -> int:
        """How many slots are free and not waited for."""
        return max(0, self._free - len(self._waiting))

    def try_take(self) -> bool:
        """Take a slot if one is free, and return whether."""
        if not self.free:
            return False
        self.take_late()
        return True

    def take_late(self) -> None:
        """Take a slot for work that has come, though others may have taken the last one since."""
        self._free -= 1
        self._emptied.clear()

    async def take(self, *, within_s: float, unless: asyncio.Event) -> bool:
        """Wait up to `within_s` for a slot, unless `unless` is set; return whether it was got."""
        if self.try_take():
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        called_off = asyncio.ensure_future(_wait_set(unless))
        until = asyncio.FIRST_COMPLETED
        try:
            await asyncio.wait((turn, called_off), timeout=within_s, return_when=until)
        except asyncio.CancelledError:
            if turn.done():
                self.give_back()
            raise
        finally:
            called_off.cancel()
            if not turn.done():
                self._waiting.remove(turn)
        return turn.done()

    def give_back(self) -> None:
        """Free a slot, for who has waited longest."""
        if self._waiting and self._free >= 0:  # guard: late-room-returned-first
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1
            self._freed.set()
        if self._free == self._most:
            self._emptied.set()

    def resize(self, most: int) -> None:
        """Have `most` slots from now on. Those that are taken stay taken, even if too many."""
        before, self._most = self._most, most
        self._free += most - before
        while self._waiting and self._free > 0:
            self._free -= 1
            self._waiting.popleft().set_result(None)
        self._freed.set()

    async def wait_free(self) -> int:
        """Wait until a slot is free, and return how many are."""
        while not self.free:
            self._freed.clear()
            await self._freed.wait()
        return self.free

    async def wait_empty(self) -> None:
        """Wait until all slots are free."""
        await self._emptied.wait()


async def _wait_set(event: asyncio.Event) -> None:
    await event.wait()
