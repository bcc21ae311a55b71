"""Slots: a limit on how many run at a time, which several consumers may share."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """Places for work. Who waits gets one first: nobody overtakes."""

    def __init__(self, most: int) -> None:
        """Begin with `most` free places."""
        self._most = self._free = most
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._freed = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    @property
    def free(self) -> int:
        """How many places nobody has or waits for."""
        return max(0, self._free - len(self._waiting))

    def try_take(self) -> bool:
        """Take a place if one is free, and return whether."""
        if not self.free:
            return False
        self.take_late()
        return True

    def take_late(self) -> None:
        """Take a place for work that has come, though others may have taken the last one since.

        Then as many places must be given back before anybody else gets one.
        """
        self._free -= 1
        self._emptied.clear()

    async def take(self, *, within_s: float, unless: asyncio.Event) -> bool:
        """Wait for a place, and return whether it was got.

        Not for longer than `within_s`, and no more once `unless` is set.
        """
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
        """Free a place, for whoever has waited longest."""
        if self._waiting and self._free >= 0:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1
            self._freed.set()
        if self._free == self._most:
            self._emptied.set()

    def resize(self, most: int) -> None:
        """Have `most` places from now on. Whoever has one keeps it, even if that is too many."""
        before, self._most = self._most, most
        self._free += most - before
        while self._waiting and self._free > 0:
            self._free -= 1
            self._waiting.popleft().set_result(None)
        self._freed.set()

    async def wait_free(self) -> int:
        """Wait until a place is free, and return how many are."""
        while not self.free:
            self._freed.clear()
            await self._freed.wait()
        return self.free

    async def wait_empty(self) -> None:
        """Wait until nobody has a place."""
        await self._emptied.wait()


async def _wait_set(event: asyncio.Event) -> None:
    await event.wait()
