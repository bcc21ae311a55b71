"""Whether something goes on in a function, or in an agent that it runs: if not, it is left.

In a function, nothing can go on once no branch runs. In an agent that is not certain at once: its
library has tasks of its own, and goes on between two of the parts that are known here.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final

TURNS_TO_SETTLE: Final = 200
"""After so many turns of the event loop in which nothing of an agent begins or ends, it rests. Its
library takes a few from one of its tasks to the next. If it takes longer, the episode is left
while there was more to do, and does that once it goes on."""


class Activity(ABC):
    """Counts what goes on in a function, or in an agent that it runs.

    A branch runs, rests (it waits for its time, an answer or the end of an agent), or has ended.
    """

    is_of_agent = False

    def __init__(self, *, running: int) -> None:
        """Begin with so many branches."""
        self.running = running
        """The branches that run."""
        self.resting = 0
        self.agents = 0
        """The agents in which something goes on."""

    def fork(self, branches: int) -> None:
        """Note that a running branch waits for so many new ones, which run."""
        self.running += branches - 1

    def end(self) -> None:
        """Note that a running branch has ended."""
        self.running -= 1
        self._is_less()

    def rest(self) -> None:
        """Note that a running branch rests."""
        self.running -= 1
        self.resting += 1
        self._is_less()

    def wake(self) -> None:
        """Note that a resting branch runs."""
        self.running += 1
        self.resting -= 1
        self._is_more()

    def agent_goes_on(self) -> None:
        """Note that something goes on in an agent."""
        self.agents += 1
        self._is_more()

    def agent_rests(self) -> None:
        """Note that nothing does any more."""
        self.agents -= 1
        self._is_less()

    @abstractmethod
    def _is_less(self) -> None:
        """Less goes on than before."""

    @abstractmethod
    def _is_more(self) -> None:
        """More goes on than before."""


class AgentActivity(Activity):
    """That of an agent, from `open` to `close`."""

    is_of_agent = True

    def __init__(self, outer: Activity) -> None:
        """Tell `outer` whether something goes on."""
        super().__init__(running=0)
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
