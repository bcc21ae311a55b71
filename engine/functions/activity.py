"""Whether something goes on in an agent: if not, the episode is left.

In a function, nothing can go on once no branch runs. In an agent that is not certain at once: its
library has tasks of its own, and goes on between two of the parts that are known here.
"""

from __future__ import annotations

import asyncio
from typing import Final

from engine.functions.branch import Activity

TURNS_TO_SETTLE: Final = 200
"""After so many turns of the event loop in which nothing of an agent begins or ends, it rests. Its
library takes a few from one of its tasks to the next. If it takes longer, the episode is left
while there was more to do, and does that once it goes on."""


class AgentActivity(Activity):
    """That of an agent, from `open` to `close`."""

    is_of_agent = True

    def __init__(self, outer: Activity) -> None:
        """Tell `outer` whether something goes on."""
        self._outer = outer
        self._is_going_on = True
        self._is_over = False
        self._is_looking = False
        self._turns_left = 0

    def open(self) -> None:
        """Note that the branch that runs the agent waits for its end."""
        self._outer.agent_goes_on()
        self._outer.rest()

    def close(self) -> None:
        """Note that the agent has ended, and its branch runs."""
        self._is_over = True
        self._outer.wake()
        if self._is_going_on:
            self._outer.agent_rests()

    def begin(self) -> None:
        """Note that a branch begins."""
        self.running += 1
        self._is_more()

    @property
    def _is_still(self) -> bool:
        return not (self.running or self.agents or self._is_over) and self.resting > 0

    def _is_less(self) -> None:
        self._changed()

    def _is_more(self) -> None:
        self._changed()

    def _changed(self) -> None:
        if self._is_over:
            return
        if not self._is_going_on:
            self._is_going_on = True
            self._outer.agent_goes_on()
        self._turns_left = TURNS_TO_SETTLE
        if self._is_still and not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        if not self._is_still:
            self._is_looking = False
        elif self._turns_left:
            self._turns_left -= 1
            asyncio.get_running_loop().call_soon(self._look)
        else:
            self._is_looking = self._is_going_on = False
            self._outer.agent_rests()
