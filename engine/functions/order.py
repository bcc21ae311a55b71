"""`Order`: in which order the branches of a function go on, and what a replay gives each of them.

At any moment a branch runs, asks for the answer to a call, or rests until its time or its answer
comes. Recorded answers are given out in the order of recording, and the next one only when no
branch runs: so branches that share variables see each other's changes as they did the first time.
After the last record, when every branch asks or rests, what was announced and not recorded must be
among what they ask for; then they go live. When all rest, the episode can be left.

What is part of an agent has a name of its own, which says where the model has asked for it, and is
given out in any order: the tasks that ask for it are its library's.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from engine.app.actions import OfAgent, Step, ToolCall
from engine.episodes.episode import ARGS_CHARS_MAX
from engine.episodes.recovery import kind_of, stands, text_of_step
from engine.errors import Interrupted
from engine.functions.activity import Activity
from engine.functions.branch import Branch, parted_at
from engine.functions.history import History
from engine.functions.place import place_of_call
from engine.usercode.cancel_scope import CancelScope
from streams.model.events import StepAnnounced, StepRecorded

NOT_SHOWN: Final = " with values that are not shown", " with other values"
"""Shown for the arguments of two calls of one tool that look the same when redacted. A hash of them
would confirm a guess of a secret.
"""

REMEDY: Final = (
    'if the code has changed, keep the old code for open episodes under `if not ctx.changed("…")`;'
    " if it has not, `vigil check` lists what is not the same each time"
)

REMEDY_IF_SAME: Final = (
    "the code is the one that has recorded this: `vigil check` lists what is not the same each time"
)

REMEDY_OF_CLASS: Final = (
    "if the code has changed, declare the new one under another name until the open episodes have"
    " ended; if it has not, `next_step` and `handle_result` must decide the same each time"
)

REMEDY_OF_FORK: Final = "it takes another way than the one recorded: fork earlier, or at 0"

log = structlog.get_logger("vigil.function")


@dataclass
class Asked:
    """A call that a branch waits to have answered."""

    path: str
    action: Step | OfAgent
    mark: str
    """The action's fingerprint."""
    place: str
    """The user's line."""
    answer: asyncio.Future[StepRecorded | None]
    """None: nothing is recorded, and the call goes live."""
    activity: Activity
    """What its branch is counted in."""
    given: StepRecorded | None = None
    is_given: bool = False
    """Whether there is an answer, `given`, though the future may have been canceled before."""

    async def answered(self, scope: CancelScope) -> StepRecorded | None:
        """Return the answer. May be `Interrupted`.

        A timeout of the function's own comes too late for what is recorded: it is answered still.
        """
        while True:
            answer = self.answer
            try:
                return await answer
            except asyncio.CancelledError:
                if scope.is_canceled:
                    raise
                if self.is_given:  # guard: answer-given-while-canceled
                    return self.given
                if answer.cancelled():  # guard: recorded-answered-though-late
                    self.answer = asyncio.get_running_loop().create_future()


class Order(Activity):
    """The branches of one function, and the records that they are fed with."""

    def __init__(
        self,
        history: History,
        comparison: Comparison,
        *,
        on_mismatch: Callable[[str], object],
        on_rest: Callable[[], None],
    ) -> None:
        """Feed one branch, the function itself, with `history`.

        Args:
            on_mismatch: called with what differs, if the replay asks for something else.
            on_rest: called when every branch rests.
        """
        super().__init__(running=1)
        self._comparison = comparison
        self._on_mismatch, self._on_rest = on_mismatch, on_rest
        # A plain dict looks for its first entry behind all those that were taken out of it.
        self._left = OrderedDict((step.path, step) for step in history.steps)
        """Path → the record that nobody has asked for yet, in the order of recording."""
        self._announced = {each.path: each for each in history.announced}
        """The same for what was announced and not recorded."""
        self._calls = _last_calls(history)
        self.parts = {step.path: step for step in history.parts}
        """The same for what is part of an agent. Plain: it is looked at before each call."""
        self.parts_announced = {each.path: each for each in history.parts_announced}
        self._asked: dict[str, Asked] = {}
        self._is_stopped = False

    @property
    def is_live(self) -> bool:
        """Whether everything recorded or announced has been asked for."""
        return not self._left and not self._announced

    @property
    def has_given_all(self) -> bool:
        """Whether everything recorded has been asked for."""
        return not self._left and not self.parts

    def has(self, path: str) -> bool:
        """Return whether the call at `path` is recorded, and nobody has asked for it yet."""
        return path in self._left

    def is_behind(self, prefix: str, calls: int) -> bool:
        """Return whether the branch of `prefix`, after so many `calls`, made another one before."""
        return calls < self._calls.get(prefix, 0)

    def next_left(self) -> StepRecorded | StepAnnounced | None:
        """Return the first record or announcement that nobody has asked for; None: none is left."""
        tables = self._left, self._announced, self.parts, self.parts_announced
        return next((each for table in tables for each in table.values()), None)

    def answer_alone(self, path: str, mark: str) -> StepRecorded | None:
        """Return the next record to a branch that runs alone; None: `ask`, for it is no other's.

        If it asks for the one call that was announced and not recorded, it is live from then on.
        """
        if self.running > 1 or self._asked:
            return None
        if not self._left:
            announced = self._announced.get(path)
            is_all = announced is not None and len(self._announced) == 1
            if is_all and announced is not None and announced.fingerprint == mark:
                self._announced.clear()
            return None
        step = next(iter(self._left.values()))
        is_same = step.path == path and step.fingerprint == mark
        return self.answer_at_once(path) if is_same else None

    def ask(self, path: str, action: Step | OfAgent, mark: str, branch: Branch) -> Asked | None:
        """Ask for the record of the call at `path`, with its fingerprint; None: it goes live."""
        if self.is_live:
            return None
        answer: asyncio.Future[StepRecorded | None] = asyncio.get_running_loop().create_future()
        place = place_of_call() or branch.origin
        asked = Asked(path, action, mark, place, answer, branch.activity)
        self._asked[path] = asked
        branch.activity.rest()
        return asked

    def answer_at_once(self, path: str) -> StepRecorded | None:
        """Return the record at `path` of a call that is not awaited; None: there is none."""
        step = self._left.pop(path, None)
        if step is not None and self.is_live:
            self._go_live()
        part = self.parts.pop(path, None) if step is None else None
        return step or part

    def part_at(self, path: str) -> StepRecorded | StepAnnounced | None:
        """Return what is recorded, or else announced, at `path` of an agent; None: nothing is."""
        announced = self.parts_announced.pop(path, None)
        return self.parts.pop(path, None) or announced

    def part_left(self, prefix: str) -> StepRecorded | StepAnnounced | None:
        """Return what an agent has done or announced, and has not asked for; None: nothing."""
        parts = [*self.parts.values()], [*self.parts_announced.values()]
        left = (each for some in parts for each in some if each.path.startswith(prefix))
        return next(left, None)

    def drop_parts(self, prefix: str) -> None:
        """Forget what an agent has done that was cut off, and what was reserved for it."""
        self.parts = {at: each for at, each in self.parts.items() if not at.startswith(prefix)}
        announced = self.parts_announced.items()
        # A call that was announced is not forgotten: nobody knows whether it was made.
        kept = [(at, each) for at, each in announced if each.is_call or not at.startswith(prefix)]
        self.parts_announced = dict(kept)

    def recorded_within(self, path: str) -> StepRecorded | None:
        """Return the first record of a branch of the call at `path`, or of an attempt at it."""
        # guard: time-above-gather-told
        return next((step for at, step in self._left.items() if at.startswith(f"{path}.")), None)

    def _is_less(self) -> None:
        if not self.running and not self._is_stopped:  # guard: records-in-recording-order
            self._go_on()

    def _is_more(self) -> None:
        """Nothing can be given to anybody for it."""

    def stop(self) -> None:
        """End every branch that asks; the others end at their next call."""
        self._is_stopped = True
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(Interrupted())
        self._asked.clear()

    def _go_on(self) -> None:
        if not self._left:
            return self._go_on_live()
        step = next(iter(self._left.values()))
        asked = self._asked.get(step.path)
        # guard: other-action-no-answer
        if asked is None or not self._comparison.answers(step, asked):
            return self._differ(step, asked)
        del self._left[step.path], self._asked[step.path]
        self._give(asked, step)
        if self.is_live:
            self._go_live()
        return None

    def _go_on_live(self) -> None:
        for announced in self._announced.values():
            asked = self._asked.get(announced.path)
            # guard: announced-side-effect-made
            if asked is None or not self._comparison.answers(announced, asked):
                return self._differ(announced, asked)
        self._announced.clear()
        if self._asked:
            return self._go_live()
        # guard: busy-agent-not-left
        return None if self.agents else self._on_rest()

    def _differ(self, recorded: StepRecorded | StepAnnounced, asked: Asked | None) -> None:
        other = asked or next(iter(self._asked.values()), None)
        self._on_mismatch(self._comparison.difference(recorded, other))

    def _go_live(self) -> None:
        for asked in self._asked.values():
            self._give(asked, None)
        self._asked.clear()

    def _give(self, asked: Asked, step: StepRecorded | None) -> None:
        asked.given, asked.is_given = step, True
        if not asked.answer.done():  # Its branch may be canceled.
            asked.answer.set_result(step)
        asked.activity.wake()


@dataclass
class Comparison:
    """Whether what a replay asks for is what the journal has; tells people how it differs."""

    shown: Callable[[ToolCall], msgspec.Raw]
    """Returns the arguments of a call as people may see them."""
    remedy: str
    branches: Mapping[str, Branch]
    """Those of the run, by their prefixes."""
    strict_up_to: float = 0
    """The last step whose values must be the same."""
    others: str = ""
    """The first call that was answered by a record with other values."""

    def answers(self, recorded: StepRecorded | StepAnnounced, asked: Asked) -> bool:
        """Return whether a record, or an announcement, is that of what is asked for."""
        if recorded.fingerprint == asked.mark:
            return True
        # guard: strict-replay-same-values
        if recorded.step_no <= self.strict_up_to or not stands(recorded, asked.action):
            return False
        if not self.others:  # guard: other-values-told-once
            self.others = self._both(recorded, asked)
            log.warning(
                "a record stands, though the replay asks with other values", how=self.others
            )
        return True

    def difference(self, recorded: StepRecorded | StepAnnounced, asked: Asked | None) -> str:
        """Return how they differ, and what to do."""
        before = f"before that, {self.others}; " if self.others else ""
        return f"{self._both(recorded, asked)}; {before}{self.remedy}"

    def _both(self, recorded: StepRecorded | StepAnnounced, asked: Asked | None) -> str:
        said = f"call {recorded.path} was {text_of_step(recorded)}"
        parted = (
            "" if asked and asked.path == recorded.path else parted_at(self.branches, recorded.path)
        )
        at = f"the ways part at {parted}: " if parted else ""
        if asked is None:
            return f"{said}; {at}the replay ends, or waits, without it"
        was, asks = self._values(recorded, asked.action)
        as_other = "" if asked.path == recorded.path else f"as call {asked.path} "
        now = f"{at}the replay asks {as_other}for {kind_of(asked.action)}{asks}"
        place = f" at {asked.place}" if asked.place else ""
        return f"{said}{was}; {now}{place}"

    def _values(
        self, recorded: StepRecorded | StepAnnounced, action: Step | OfAgent
    ) -> tuple[str, str]:
        """Return the arguments of two calls of one tool, or what to say of them; else nothing."""
        if text_of_step(recorded) != kind_of(action):
            return "", ""  # What they are called says it, such as the lengths of sleeps.
        # guard: only-announced-difference-told
        if isinstance(recorded, StepRecorded) and isinstance(action, ToolCall):
            was, asks = _short(recorded.args), _short(self.shown(action))
            if was != asks:  # guard: alike-arguments-told
                return f" {was}", f" {asks}"
        return NOT_SHOWN  # guard: error-quotes-no-hash


def _short(args: msgspec.Raw) -> str:
    text = bytes(args).decode()
    return text if len(text) <= ARGS_CHARS_MAX else f"{text[:ARGS_CHARS_MAX]}…"


def _last_calls(history: History) -> dict[str, int]:
    """Return the prefix of each branch → the number of its last call on the journal."""
    last: dict[str, int] = {}
    paths = [step.path for step in (*history.steps, *history.parts)]
    paths += [each.path for each in (*history.announced, *history.parts_announced)]
    paths += [history.waits] if history.waits else []  # guard: waited-for-call-was-made
    for path in paths:
        within, dot, number = path.rpartition(".")
        while True:  # From the call itself to that of the function which it is in.
            prefix = within + dot
            last[prefix] = max(last.get(prefix, 0), int(number))
            if not prefix:
                break
            within, dot, number = within.rpartition(".")[0].rpartition(".")
    return last
