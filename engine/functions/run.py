"""`StrategyRun`: runs the function of one episode, from the top, to its end or until it must wait.

What the journal holds is not done again: `Order` gives it to the calls that ask for it. A call
without a record goes live, as a turn of the episode. When every branch waits, the function is left,
and runs again from the top once there is an answer; the episode waits for one thing at a time, and
for sleeps before it asks people.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from engine import validation
from engine.agents.unit import Unit, UnitResult
from engine.app.actions import (
    Observe,
    OfAgent,
    Pause,
    ReportFindings,
    RequestApproval,
    SendOutput,
    Sleep,
    StartEpisode,
    Step,
    ToolCall,
    WaitFor,
    as_asked,
    fingerprint,
    problem_of,
)
from engine.app.context import Findings
from engine.app.strategy import IN_STRATEGY, Function
from engine.children.rules import CHILDREN_MAX
from engine.episodes.episode import NOW, Command, Performed
from engine.episodes.results import RESULT_LOST
from engine.errors import (
    CALL_TIMEOUT,
    CRASH,
    BudgetExceeded,
    CallFailed,
    CallTimeout,
    EpisodeFailed,
    Interrupted,
    InvalidAction,
    ReplayDiffers,
    StrategyError,
    with_place,
)
from engine.functions.activity import Activity, AgentActivity
from engine.functions.branch import (
    BRANCHES_MAX,
    REFUSALS_MAX,
    Branch,
    check_run,
    current,
    enter,
    entered,
    is_in_task,
    watch_generators,
)
from engine.functions.history import CHANGED, REFUSED, History
from engine.functions.order import Asked, Comparison, Order
from engine.functions.pending import PendingCall
from engine.functions.place import place_of_call, place_of_error
from engine.usercode.call import call, is_from_outside
from engine.usercode.cancel_scope import CancelScope
from engine.usercode.leavable import CLEANUP_S, LEFT, close, leavable, leave
from engine.waits.wait import HELD_S, sleep_until, slept
from streams.clock import Clock, wait_until
from streams.json import NOTHING, raw, unraw
from streams.model.events import (
    AGAIN,
    StepAnnounced,
    StepKind,
    StepRecorded,
    StoredResult,
    position_of,
)
from streams.model.triggers import Trigger

STRAY: Final = (
    "a call in a task or a thread of its own, such as the end of an async generator that was left,"
    " cannot be replayed; use ctx.gather(…), or contextlib.aclosing(…)"
)

LATE: Final = "a call after the end of its function, in a task of its own, which ends here"

TURNS_TO_END: Final = 3
"""How many turns of the event loop an async generator that was left takes to come to its `finally`:
one to note it, one to make a task, one to run it."""

REMEDY_OF_AGENT: Final = (
    "bring the old agent back, and the same `deps`; or fork the episode at 0; or say"
    ' on_change="go_on"'
)

REMEDY_OF_OUTPUT: Final = "bring the old output type back, or fork the episode at 0"

OWN_TIMEOUT: Final = "the function's own timeout was over before the call"

Taken: TypeAlias = StepRecorded | Performed
"""A step with its result: as the journal has it, or as it was just done."""

T = TypeVar("T")

log = structlog.get_logger("vigil.function")


class LiveTurns(Protocol):
    """What a live call needs of its episode."""

    @property
    def clock(self) -> Clock:
        """The time."""

    @property
    def findings(self) -> Findings:
        """The stack's findings, as they are now."""

    @property
    def waits_for_people(self) -> bool:
        """Whether approvals, waits and sleeps are real; otherwise `take` answers them."""

    @property
    def holds_sleeps(self) -> bool:
        """Whether a short sleep is waited for; otherwise the run ends at any."""

    @property
    def steps_recorded(self) -> int:
        """How many steps the episode has recorded."""

    @property
    def scope(self) -> CancelScope:
        """What the function runs in."""

    def shown(self, action: ToolCall) -> msgspec.Raw:
        """Return the arguments of a call as people may see them."""

    def note_replayed(self, action: Step, result: object) -> None:
        """Note that the journal had the end of `action`; `result` is None if it has failed."""

    def request_for(self, exceeded: BudgetExceeded) -> RequestApproval | None:
        """Return what people are asked where a call does not fit in the budget; None: nobody is."""

    def check(self, *, begun: int) -> None:
        """Raise what keeps the episode from another turn while so many are `begun`."""

    async def take(
        self, action: Step, mark: str, *, path: str, also: Sequence[Command] = ()
    ) -> Performed:
        """Announce, perform and record `action`, with `also` in the same commit.

        `mark` is its fingerprint.
        """

    def start_child(
        self, action: StartEpisode, mark: str, *, path: str, group: str, begun: int
    ) -> Performed | None:
        """Announce a child, which is then started; or record that it cannot be, and return that.

        `group`: see `ChildStart`; `begun`: how many turns are not recorded yet, this one included.
        """

    async def fetch(self, stored: StoredResult) -> msgspec.Raw:
        """Return a result that is in the object store."""

    async def make(self, unit: Unit, *, path: str) -> Performed:
        """Make and record what an agent does; `settle` is to follow."""

    async def keep(self, performed: Performed) -> None:
        """Record what has ended, and put its result into the object store if it is large."""

    async def settle(self, path: str = "") -> None:
        """Settle what the step at `path` has cost; it is durable then, where that is wanted."""

    def record(self, *commands: Command) -> None:
        """Record what is done."""

    def time_out(self, action: Step, *, path: str) -> Performed:
        """Record that a timeout of the function's own has cut `action` off.

        Raises `EpisodeFailed` if nobody knows whether it has had a side effect.
        """

    def announced_at(self, path: str) -> StepAnnounced | None:
        """Return what was announced at `path` and is not recorded; None: nothing."""


class Rest(msgspec.Struct, frozen=True):
    """What a branch waits for."""

    path: str
    action: Pause | StartEpisode
    since: datetime
    until: datetime | None
    """When it ends by itself, if it is a sleep."""
    over: asyncio.Future[None]
    activity: Activity
    """What its branch is counted in."""
    is_grant: bool = False
    """Whether the call at `path` does not fit in the budget, and people are asked for more."""
    steps_before: int = 0
    """How many steps were recorded when it did not fit."""
    ahead: tuple[str, ...] = ()
    """The references that other branches wait for, when this is what the episode must wait for."""
    for_children: bool = False
    """Whether branches wait for children then."""


StrategyCode: TypeAlias = Callable[[Any, Trigger], Awaitable[object]]
"""What a run calls with its `ctx`: see `called`, for functions, and `StrategyLoop`, for classes."""


async def called(function: Function, scope: CancelScope, ctx: object, trigger: Trigger) -> object:
    """Return what `function` returns; it may be left, and cannot catch that."""
    watch_generators()
    return await leavable(call(_called, function, ctx, trigger), scope)


async def _called(function: Function, ctx: object, trigger: Trigger) -> object:
    IN_STRATEGY.set(True)
    try:
        return await function.run(ctx, trigger)
    except CallFailed as failed:
        place = place_of_error(failed)
        # A traceback ends its last line, which short views show.
        # guard: crash-last-line-raised
        ends = (failed.detail.rstrip(), f"({place})") if place else (failed.detail,)
        detail = " ".join(filter(None, ends))
        raise EpisodeFailed(failed.error_class, detail) from failed
    except StrategyError as error:
        place = place_of_error(error)  # guard: refused-call-told-line
        raise _at(place, error) from error
    finally:
        IN_STRATEGY.set(False)


def _at(place: str, error: StrategyError) -> EpisodeFailed:
    """Return `error` as what ends an episode, with the user's line if it does not name one."""
    told = str(error) if error.place else with_place(str(error), place)
    return EpisodeFailed(error.error_class, told)


class StrategyRun:
    """One run of the strategy of an episode."""

    def __init__(
        self,
        strategy: StrategyCode,
        history: History,
        turns: LiveTurns,
        *,
        seed: str,
        remedy: str,
        strict_up_to: float = 0,
        origin: str = "",
    ) -> None:
        """Continue after `history`; `seed` makes what looks like chance, the same in a replay.

        Args:
            remedy: what to tell people to do if the function takes another way than its history.
            strict_up_to: the last step that is no answer to a call with other values.
            origin: what calls have as their place that no line of the user's makes.
        """
        self._strategy, self._turns, self._clock, self._seed = strategy, turns, turns.clock, seed
        self._history, self._scope = history, turns.scope
        self._branches: dict[str, Branch] = {}
        """By their prefixes, those that have ended included."""
        self._comparison = Comparison(turns.shown, remedy, self._branches, strict_up_to)
        self._order = Order(
            history, self._comparison, on_mismatch=self._differ, on_rest=self._leave
        )
        calls = history.calls_before
        self._root = self._branches[""] = Branch(self, self._order, calls=calls, origin=origin)
        self._held: list[Command] = []
        """What is recorded once the replay has asked for all that the journal has."""
        self.tokens_used = history.tokens_before
        """By the steps that the function has got so far."""
        self.state: Any = None
        """What `on_exhausted` gets: the newest checkpoint's value, or the state of a class."""
        self.has_state = False
        self._resting: dict[str, Rest] = {}
        self._agents: set[asyncio.Task[Performed]] = set()
        """What agents run in; they end when the run does."""
        self._follows = dict(history.changes)
        self._begun = self._refusals = self.steps_made = 0
        self._pending: dict[PendingCall[Any], None] = {}
        self._why: BaseException | Rest | None = None
        self.has_left_generators = False
        self._stray = ""
        """What to tell of a call in a task of its own, which nobody may hear of otherwise."""
        self._stray_at = ""
        """Where the newest one was asked for."""
        self._is_over = False
        """Whether the function has ended, or was left."""

    async def to_the_end(self, ctx: object, trigger: Trigger) -> object | Rest:
        """Return what the function returns, or what the episode must wait for.

        Raises what ended it: `EpisodeFailed`, or what a turn raised.
        """
        try:
            return await self._returned(ctx, trigger)
        finally:
            self._is_over = True

    async def _returned(self, ctx: object, trigger: Trigger) -> object | Rest:
        enter(self._root)
        returned: object = None
        try:
            returned = await call(self._strategy, ctx, trigger)
        except Interrupted as error:
            # guard: unasked-interrupt-fails
            self._why = self._why or EpisodeFailed(CRASH, f"nothing of this run raised {error!r}")
        except EpisodeFailed as failed:
            self._why = self._why or failed
        # guard: caught-cancel-cut-off
        if self._scope.is_canceled:  # The function has caught it.
            raise asyncio.CancelledError
        if isinstance(self._why, BaseException):
            raise self._why
        if self._why is not None:
            return self._why
        if self.has_left_generators:  # guard: left-generator-awaited
            await self._let_generators_end()
        # guard: call-in-own-task-told
        forgotten = next((each.problem for each in self._pending), self._stray)
        if forgotten:
            raise EpisodeFailed(InvalidAction.error_class, forgotten)
        self.check_all_asked()
        self._record_held()
        if isinstance(self._why, BaseException):
            raise self._why
        return returned

    def check_all_asked(self) -> None:
        """Raise `ReplayDiffers` if the function ends without having asked for what is recorded."""
        left = self._order.next_left()
        if left is not None:  # guard: unasked-record-told
            raise ReplayDiffers(self._comparison.difference(left, None))

    async def _let_generators_end(self) -> None:
        """Let the event loop end the async generators that were left, so that their calls count."""
        for _ in range(TURNS_TO_END):
            await asyncio.sleep(0)

    def pending(
        self, name: str, work: Callable[[], Coroutine[Any, Any, T]], *, is_child: bool = False
    ) -> PendingCall[T]:
        """Return a call that `work` makes; the function must not return before it is awaited."""
        check_run(self)
        place = place_of_call()
        made = PendingCall(name, work, place=place, on_awaited=self._awaited, is_child=is_child)
        self._pending[made] = None
        return made

    def hand_over(self, works: Sequence[object]) -> None:
        """Note that `works` are awaited by the one who got them."""
        for each in works:
            if isinstance(each, PendingCall):
                self._awaited(each)

    def _awaited(self, made: PendingCall[Any]) -> None:
        self._pending.pop(made, None)
        branch = current()
        if branch is not None:
            branch.place = made.place
        else:
            self._stray_at = made.place

    @property
    def other_values(self) -> str:
        """How the first call differs that a record with other values has answered; else nothing."""
        return self._comparison.others

    @property
    def has_replayed(self) -> bool:
        """Whether all that was recorded has been asked for."""
        return self._order.has_given_all

    @property
    def turn(self) -> int:
        """The number of the next call of the function itself, from 1."""
        return self._root.calls + 1

    def note_state(self, state: object) -> None:
        """Note what `on_exhausted` gets from now on."""
        self.state, self.has_state = state, True

    async def step(self, action: Step, *, also: Sequence[Command] = ()) -> Any:  # noqa: ANN401
        """Return the result of `action`; `CallFailed`: it has failed."""
        taken = await self.taken(action, also=also)
        failed = taken.error_class
        result = None if failed else await self.result_of(taken)
        if isinstance(taken, StepRecorded):
            self._turns.note_replayed(action, result)  # guard: replayed-call-hides
        if failed == CALL_TIMEOUT:
            raise CallTimeout(taken.error_detail)
        if failed:
            raise CallFailed(failed, taken.error_detail, recorded=taken.result)
        return result

    async def result_of(self, taken: Taken) -> Any:  # noqa: ANN401 - any JSON value
        """Return the result of a step, which may be in the object store."""
        return unraw(taken.result if taken.stored is None else await self.fetch(taken.stored))

    async def fetch(self, stored: StoredResult) -> msgspec.Raw:
        """Return what is in the object store."""
        fetch = partial(self._turns.fetch, stored)
        return await self._live(self._surely(fetch))  # guard: lost-result-uncatchable

    async def find(self, stored: StoredResult) -> msgspec.Raw | None:
        """Return what is in the object store; None: it is gone, or damaged."""
        return await self._live(self._surely(partial(self._found, stored)))

    async def _found(self, stored: StoredResult) -> msgspec.Raw | None:
        try:
            return await self._turns.fetch(stored)
        except EpisodeFailed as lost:
            if lost.error_class != RESULT_LOST:
                raise
            return None

    def recorded_part(self, path: str) -> StepRecorded | None:
        """Return the record at `path` of an agent, until it is asked for; None: there is none."""
        return self._order.parts.get(path)

    def step_no_of(self, taken: Taken) -> int:
        """Return the number of the newest step, which is `taken`."""
        return taken.step_no if isinstance(taken, StepRecorded) else self._turns.steps_recorded

    async def taken(self, action: Step, *, also: Sequence[Command] = ()) -> Taken:
        """Return how `action` ended: its last attempt, if it was repeated."""
        branch = await self._begin_call()
        path = branch.next_path()
        if problem := problem_of(action):  # guard: action-values-checked
            raise InvalidAction(problem, place=place_of_call() or branch.origin)
        # guard: no-json-fails-at-line
        mark = fingerprint(action)  # Raises at the user's line.
        done: Taken | None = None
        if not branch.activity.is_of_agent:
            done = self._order.answer_alone(path, mark)
        if done is None:
            action = as_asked(action)  # guard: call-arguments-unchanged
            done = await self._done(action, mark, path, branch, also)
        else:
            self.tokens_used += done.cost_tokens
        if done.retry_s:
            again = branch.again()
            attempt = partial(self._done, action, mark, branch=again)
            done = await self._repeated(attempt, done, again)
        return done

    async def _repeated(
        self, attempt: Callable[[str], Awaitable[Taken]], done: Taken, again: Branch
    ) -> Taken:
        """Return how the last attempt ended; each one's record says whether there is another."""
        while done.retry_s:
            pause = Sleep(done.retry_s)
            mark, path = fingerprint(pause), again.next_path()
            paused = await self._done(pause, mark, path, branch=again)
            if paused.error_class:  # guard: own-timeout-ends-attempts
                return paused
            done = await attempt(again.next_path())
        return done

    async def _done(
        self, action: Step, mark: str, path: str, branch: Branch, also: Sequence[Command] = ()
    ) -> Taken:
        done: Taken | None = None
        has_parts = self._order.parts or self._order.parts_announced
        if branch.activity.is_of_agent or has_parts or not self._order.is_live:
            done = await self._recorded(path, action, mark, branch)
        if done is None:
            done = await self._live(self._do(action, mark, path, branch, also))
        self.tokens_used += done.cost_tokens
        return done

    async def _recorded(
        self, path: str, action: Step | OfAgent, mark: str, branch: Branch
    ) -> StepRecorded | None:
        part = self._order.part_at(path) if branch.activity.is_of_agent else None
        if part is not None:
            asked = _asked(path, action, mark, branch)
            if not self._comparison.answers(part, asked):  # guard: other-part-no-answer
                raise self._differ_at(part, asked)
            if isinstance(part, StepRecorded):
                return part
        has_parts = self._order.parts or self._order.parts_announced
        within = self._order.part_left(f"{path}.") if has_parts else None
        # guard: agent-that-is-gone-differs
        if within is not None and not isinstance(action, OfAgent):
            raise self._differ_at(within, _asked(path, action, mark, branch))
        waiting = self._order.ask(path, action, mark, branch)
        return None if waiting is None else await waiting.answered(self._scope)

    async def with_agent(
        self,
        action: OfAgent,
        work: Callable[[AgentActivity, str], Coroutine[Any, Any, Performed]],
    ) -> Taken:
        """Return how an agent ended that `work` runs, in a task of its own.

        `work` is given what its parts are counted in, and the path of the agent. It is not called
        if the agent has ended before. What the agent has done before a crash, it gets as recorded.
        """
        branch = await self._begin_call()
        path = branch.next_path()
        mark = fingerprint(action)  # Raises at the user's line.
        if branch.activity.is_of_agent or self._order.has(path):
            recorded = await self._recorded(path, action, mark, branch)
            if recorded is not None:
                return recorded
        done = replace(await self._ended(action, work, path, branch), fingerprint=mark, path=path)
        if self._order.is_live:
            await self._live(self._surely(partial(self._turns.keep, done)))
        else:
            self.record(done)
        await self.settle(path)
        return done

    async def _ended(
        self,
        action: OfAgent,
        work: Callable[[AgentActivity, str], Coroutine[Any, Any, Performed]],
        path: str,
        branch: Branch,
    ) -> Performed:
        activity = AgentActivity(branch.activity)
        within = work(activity, path)
        task = asyncio.create_task(_outside(within), name=f"{action.name} at {path}")
        task.add_done_callback(lambda _: close(within))  # It may not have begun.
        self._agents.add(task)
        activity.open()
        done = _cut_off(action)
        try:
            await self._end_of(task)
        except asyncio.CancelledError:
            self._check_own_timeout()
            self._order.drop_parts(f"{path}.")
        else:
            if self._why is None:
                done = task.result()
        finally:
            self._agents.discard(task)
            activity.close()
        if self._why is not None:
            raise Interrupted
        if left := self._order.part_left(f"{path}."):  # guard: unasked-part-told
            raise self._differ(self._comparison.difference(left, None))
        return done

    async def _end_of(self, task: asyncio.Task[Any]) -> None:
        """Wait until an agent has ended; it is canceled where its run ends before it."""
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await self._surely(partial(_cleaned_up, task))
            raise

    async def unit(self, unit: Unit) -> UnitResult:
        """Return what an agent has made, which is made once."""
        branch = await self._begin_call()
        done = await self._unit(unit, branch.next_path(), branch=branch)
        if done.retry_s:
            again = branch.again()
            attempt = partial(self._unit, unit, branch=again)
            done = await self._repeated(attempt, done, again)
        if done.error_class == CALL_TIMEOUT:
            raise CallTimeout(done.error_detail)
        result = done.result if done.stored is None else await self.fetch(done.stored)
        return UnitResult(
            is_new=isinstance(done, Performed),
            result=result,
            error_class=done.error_class,
            error_detail=done.error_detail,
            input_tokens=done.input_tokens,
            output_tokens=done.output_tokens,
            cached_tokens=done.cached_tokens,
            cost_usd=done.cost_usd,
        )

    async def _unit(self, unit: Unit, path: str, *, branch: Branch) -> Taken:
        action = OfAgent(unit.kind, unit.name)
        part = self._order.part_at(path)
        # guard: changed-request-parks
        if part is not None and part.fingerprint != unit.mark and not unit.stands:
            raise self._differ(self._changed_unit(unit, part, branch))
        if not isinstance(part, StepRecorded):
            waiting = self._order.ask(path, action, unit.mark, branch)
            if waiting is not None:
                await waiting.answered(self._scope)
            made = await self._live(self._made(unit, path, branch))
            self.tokens_used += made.cost_tokens
            return made
        self.tokens_used += part.cost_tokens
        if unit.kind is StepKind.TOOL_CALL:  # What it has done is not asked for any more.
            self._order.drop_parts(f"{path}.")
        return part

    def _changed_unit(self, unit: Unit, part: StepRecorded | StepAnnounced, branch: Branch) -> str:
        """Return how an agent asks for something else than it did, and what to do."""
        args = part.args if isinstance(part, StepRecorded) else NOTHING
        told = unit.told(args) if unit.told and args != NOTHING else "it asks for something else"
        told = f"{told}: {unit.problem}" if unit.problem else told
        at = f" at {branch.origin}" if branch.origin else ""
        return f"call {part.path}, {unit.kind} {unit.name}{at}: {told}; {REMEDY_OF_AGENT}"

    def other_output(self, path: str, name: str, how: str) -> Interrupted:
        """Return what ends a function whose agent was recorded with what is no output now."""
        place = place_of_call()
        at = f" at {place}" if place else ""
        what = f"call {path}, agent {name}{at}: its recorded output is none of its types any more"
        return self._differ(f"{what}: {how}; {REMEDY_OF_OUTPUT}")

    async def _made(self, unit: Unit, path: str, branch: Branch) -> Performed:
        within = branch.child(1, origin=branch.origin)
        self.note_branch(within)

        async def make() -> Performed:
            is_new = self._begin_turn(path)
            try:
                with entered(within):
                    return await self._turns.make(unit, path=path)
            finally:
                self._begun -= is_new

        try:
            made = await self._affordable(make, path, branch)
            await self._turns.settle(path)
        except asyncio.CancelledError:  # What is recorded is settled at the end of the agent.
            self._check_own_timeout()
            raise
        return made

    def note_branch(self, branch: Branch) -> None:
        """Note a branch that is part of an agent."""
        self._branches[branch.prefix] = branch

    async def read(self, action: ToolCall, look: Callable[[], Awaitable[object]]) -> msgspec.Raw:
        """Return what `look` sees, which is recorded as `action`; `InvalidAction`: it cannot."""
        branch = await self._begin_call()
        path = branch.next_path()
        mark = fingerprint(action)  # Raises at the user's line.
        done: Taken | None = await self._recorded(path, action, mark, branch)
        if done is None:
            done = await self._live(self._look(action, mark, path, look, branch))
        if done.error_class == CALL_TIMEOUT:
            raise CallTimeout(done.error_detail)
        if done.error_class:
            raise InvalidAction(done.error_detail)
        return done.result

    def now(self) -> datetime:
        """Return the time, which is recorded."""
        branch = self._begin()
        path = branch.next_path()
        recorded = self._order.answer_at_once(path)
        differing = self._order.recorded_within(path) if recorded is None else recorded
        # What a branch of this call recorded is of another call, also if it is a time.
        # guard: time-of-a-branch-differs
        is_answered = recorded is not None and recorded.fingerprint == NOW_MARK
        if differing is not None and not is_answered:
            raise self._differ_at(differing, _asked(path, ASKS_TIME, NOW_MARK, branch))
        done: Taken | None = recorded
        if done is None:
            done = Performed(
                kind=StepKind.OBSERVATION,
                fingerprint=NOW_MARK,
                tool_name=NOW,
                result=raw(self._clock.now()),
                path=path,
            )
            self.record(done)
        return msgspec.json.decode(done.result, type=datetime)

    def draw(self) -> bytes:
        """Return bytes that look like chance, the same in a replay."""
        return self._begin().draw(self._seed)

    def changed(self, name: str) -> bool:
        """Return whether the episode follows the change `name`; the first answer stands."""
        branch = self._begin()
        if name not in self._follows:
            # What was called after this place, was called without the change; what other branches
            # did meanwhile may have been, too.
            is_past = self._order.is_behind(branch.prefix, branch.calls)
            # guard: past-change-not-followed
            self._follows[name] = not is_past and (branch.is_root or self._order.has_given_all)
            self.record(_answer(name, follows=self._follows[name]))
        return self._follows[name]

    @property
    def is_live(self) -> bool:
        """Whether the branch does now what it has not done before."""
        branch = self._begin()
        return not self._order.is_behind(branch.prefix, branch.calls)

    @property
    def is_in_branch(self) -> bool:
        """Whether the caller is in a branch of `gather`."""
        return not self._begin().is_root

    async def gather(self, *works: Awaitable[Any]) -> tuple[Any, ...]:
        """Return the results of `works`, which run at the same time; all of them end.

        The first in order that failed raises here.
        """
        parent = await self._begin_call()
        if problem := _problem_of_branches(works):
            _close(works)
            raise InvalidAction(problem)
        if not works:
            return ()
        parent.next_path()
        origin = place_of_call() or parent.origin
        branches = [
            parent.child(number, origin=origin, only_waits=_only_waits(work))
            for number, work in enumerate(works, start=1)
        ]
        self._branches.update((each.prefix, each) for each in branches)
        left = {branch.prefix for branch in branches}
        parent.activity.fork(len(works))
        tasks = [
            asyncio.create_task(self._branch(branch, work, left))
            for branch, work in zip(branches, works, strict=True)
        ]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # They begin, so that each records that it is cut off.
            for task in tasks:
                task.cancel()
            await self._surely(partial(asyncio.wait, tasks))
            if self._scope.is_canceled:
                raise
        if self._why is not None:
            raise Interrupted
        ends = [task.result() for task in tasks]
        failed = next((end for end in ends if isinstance(end, _Raised)), None)
        if failed is not None:
            raise failed.error
        return tuple(ends)

    async def _branch(self, branch: Branch, work: Awaitable[Any], left: set[str]) -> Any:  # noqa: ANN401
        enter(branch)
        try:
            if inspect.iscoroutine(work):
                return await leavable(work, self._scope)
            return await work
        except BaseException as error:  # guard: branch-raise-fails-episode
            if is_from_outside(error, branch.task):
                raise
            return _Raised(error)
        finally:
            left.discard(branch.prefix)
            if left:
                branch.activity.end()  # Otherwise its place is now that of the branch that waits.

    def _begin(self) -> Branch:
        check_run(self)
        branch = current()
        if branch is None:
            raise self._stray_call(place_of_call() or self._stray_at)
        if self._scope.is_canceled:  # guard: caught-cancel-no-more-calls
            self._refusals += 1
            raise asyncio.CancelledError
        if self._why is not None:
            self._refusals += 1
            raise Interrupted
        return branch

    def _stray_call(self, place: str) -> BaseException:
        """Return what to raise in a task or a thread of its own."""
        if self._is_over and is_in_task():  # guard: late-call-told
            log.warning(LATE, at=place, instead="await ctx.gather(…)")
            return asyncio.CancelledError()
        refused = InvalidAction(STRAY, place=place)
        self._stray = str(refused)
        return refused

    async def _begin_call(self) -> Branch:
        if self._refusals >= REFUSALS_MAX:  # guard: endless-caller-left
            await leave()  # It would go on for ever, and the node's event loop would stand still.
        return self._begin()

    def _begin_turn(self, path: str) -> bool:
        """Return whether the call is a turn of its own; raise what keeps it from going live."""
        self._record_held()
        if self._why is not None:  # Another branch may have met it meanwhile.
            raise Interrupted
        is_new = AGAIN not in path  # The turn is that of the first attempt.
        self._turns.check(begun=self._begun - (not is_new))  # guard: repeated-call-has-turn
        self._begun += is_new  # guard: branch-within-budget
        return is_new

    async def _live(self, work: Awaitable[T]) -> T:
        """Await `work`; what the engine raises ends the function, which cannot catch it."""
        inside = IN_STRATEGY.set(False)  # guard: tool-may-call-tool
        try:
            return await work
        except (asyncio.CancelledError, GeneratorExit, Interrupted):
            raise
        except EpisodeFailed as failed:
            why, cause = failed, failed.__cause__
            if isinstance(cause, StrategyError):  # guard: refused-turn-told-line
                why = _at(place_of_call(), cause)
            raise self._stop(why) from failed
        except BaseException as error:
            raise self._stop(error) from error  # guard: engine-errors-uncatchable
        finally:
            with suppress(ValueError):  # Python may close it in another context.
                IN_STRATEGY.reset(inside)  # guard: no-more-past-journal-after

    async def _affordable(self, turn: Callable[[], Awaitable[T]], path: str, branch: Branch) -> T:
        """Return what the turn of the call at `path` brings, once it fits in the budget.

        Where people may grant more, the branch rests; others may leave some of theirs meanwhile.
        """
        while True:
            try:
                return await turn()
            except BudgetExceeded as exceeded:
                request = self._turns.request_for(exceeded)
                if request is None:
                    raise
            rest = Rest(
                path,
                request,
                self._clock.now(),
                None,
                asyncio.Future(),
                branch.activity,
                is_grant=True,
                steps_before=self._turns.steps_recorded,
            )
            await self._rest(rest)

    async def _do(
        self, action: Step, mark: str, path: str, branch: Branch, also: Sequence[Command]
    ) -> Performed:
        turn = partial(self._turn, action, mark, path, branch, also)
        try:
            performed = await self._affordable(turn, path, branch)
        except asyncio.CancelledError:
            self._check_own_timeout()
            performed = self._turns.time_out(action, path=path)
        self.steps_made += 1
        await self._settle(path)
        return performed

    async def _turn(
        self, action: Step, mark: str, path: str, branch: Branch, also: Sequence[Command]
    ) -> Performed:
        is_new = self._begin_turn(path)
        try:
            announced = self._turns.announced_at(path)
            # guard: dry-run-asks-nobody
            if isinstance(action, Pause) and self._turns.waits_for_people:
                return await self._wait(action, mark, path, branch, announced)
            if isinstance(action, StartEpisode):
                return await self._await_child(action, mark, path, branch, announced)
            take = partial(self._turns.take, action, mark, path=path, also=also)
            if isinstance(action, SendOutput | ReportFindings):  # It goes on where it was.
                return await self._surely(take)
            return await take()
        finally:
            self._begun -= is_new  # guard: recorded-turn-once

    async def settle(self, path: str = "") -> None:
        """Settle what was recorded at `path` has cost; it is durable then, where that is wanted."""
        await self._live(self._settle(path))

    async def _settle(self, path: str = "") -> None:
        settle = partial(self._turns.settle, path)
        await self._surely(settle)  # guard: durable-is-no-timeout

    def _check_own_timeout(self, known: int = 0) -> int:
        """Raise what ends the run, unless a timeout of the function's own has cut a call off.

        Return how often the task has been canceled; `known` is how often it was at the last look.
        """
        if self._scope.is_canceled:
            raise asyncio.CancelledError
        if self._why is not None:
            raise Interrupted
        task = asyncio.current_task()
        cancels = task.cancelling() if task is not None else 0
        if cancels <= known:  # guard: canceled-engine-no-timeout
            raise self._stop(asyncio.CancelledError())  # The call itself cannot go on.
        return cancels

    async def _surely(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `work` does: a timeout of the function's own comes too late for it.

        Where it is cut off it is done again, in a task of its own: anyio would cut it off again at
        each turn of the event loop.
        """
        try:
            return await work()
        except asyncio.CancelledError:
            cancels = self._check_own_timeout()
        again = asyncio.create_task(work())
        try:
            while not again.done():
                try:
                    await asyncio.wait({again})  # guard: canceled-each-turn-goes-on
                except asyncio.CancelledError:
                    cancels = self._check_own_timeout(cancels)
            if again.cancelled():  # guard: canceled-engine-twice-no-timeout
                raise self._stop(asyncio.CancelledError())
            return again.result()
        finally:
            again.cancel()

    async def _look(
        self,
        action: ToolCall,
        mark: str,
        path: str,
        look: Callable[[], Awaitable[object]],
        branch: Branch,
    ) -> Performed:
        name = f"{action.capability}.{action.action}"

        async def looked() -> object:
            is_new = self._begin_turn(path)
            try:
                return await look()
            finally:
                self._begun -= is_new

        seen = Performed(
            kind=StepKind.OBSERVATION,
            fingerprint=mark,
            tool_name=name,
            args=raw(action.args),
            path=path,
        )
        try:
            found = await self._affordable(looked, path, branch)
        except asyncio.CancelledError:
            self._check_own_timeout()
            seen = replace(seen, error_class=CALL_TIMEOUT, error_detail=OWN_TIMEOUT)
        # guard: impossible-key-keeps-attempt
        except (ValueError, TypeError) as error:  # No key, or no duration.
            refused = InvalidAction.error_class
            seen = replace(seen, error_class=refused, error_detail=f"{name}: {error}")
        else:
            seen = replace(seen, result=validation.encode(found, what=action.action))
        self._turns.record(seen)
        await self._settle()
        return seen

    async def _wait(
        self, action: Pause, mark: str, path: str, branch: Branch, announced: StepAnnounced | None
    ) -> Performed:
        since, until, seconds = self._clock.now(), None, 0.0
        if isinstance(action, Sleep):
            seconds = action.seconds
            lasts = timedelta(seconds=seconds)
            # guard: begun-sleep-ends-in-time
            until = (announced.until if announced is not None else None) or since + lasts
            since = until - lasts
        if until is not None and announced is None:
            self._announce_sleep(until, mark, path, branch)
        await self._rest(Rest(path, action, since, until, asyncio.Future(), branch.activity))
        over = slept(until, seconds, mark, path)
        self._turns.record(over)
        return over

    async def _await_child(
        self,
        action: StartEpisode,
        mark: str,
        path: str,
        branch: Branch,
        announced: StepAnnounced | None,
    ) -> Performed:
        """Start a child, unless it is; return why it cannot be, or end the run here."""
        if announced is None:  # guard: child-announced-once
            start = partial(self._turns.start_child, action, mark, path=path)
            refused = start(group=branch.group, begun=self._begun)
            if refused is not None:
                return refused
        now, over = self._clock.now(), asyncio.get_running_loop().create_future()
        await self._rest(Rest(path, action, now, None, over, branch.activity))
        raise AssertionError("the end of a child is recorded while no node has its parent")

    def _announce_sleep(self, until: datetime, mark: str, path: str, branch: Branch) -> None:
        """Record when a sleep ends, unless the episode is blocked at once, which says so, too."""
        is_held = (until - self._clock.now()).total_seconds() <= HELD_S
        if is_held or not branch.is_root:  # guard: short-sleep-after-crash
            self._turns.record(sleep_until(until, mark, path))

    async def _rest(self, rest: Rest) -> None:
        """Return once a sleep is over, or others may have left some of their budget.

        The wait for anything else ends the function here.
        """
        self._resting[rest.path] = rest
        rest.activity.rest()
        timer = None
        if rest.until is not None and self._turns.holds_sleeps and not rest.over.done():
            timer = asyncio.create_task(self._wake_at(rest, rest.until))
        try:
            await rest.over
        except asyncio.CancelledError:
            if self._resting.pop(rest.path, None) is not None:
                rest.activity.wake()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def _wake_at(self, rest: Rest, until: datetime) -> None:
        await wait_until(self._clock, until)
        self._wake(rest)

    def _wake(self, rest: Rest) -> None:
        if not rest.over.done():
            del self._resting[rest.path]
            rest.activity.wake()
            rest.over.set_result(None)

    def _leave(self) -> None:
        """Leave the function, whose branches all rest, unless one of them can go on soon."""
        if self._try_again():
            return
        sleeps = [(rest.until, rest) for rest in self._resting.values() if rest.until is not None]
        children = [
            rest for rest in self._resting.values() if isinstance(rest.action, StartEpisode)
        ]
        if sleeps:
            until, rest = min(sleeps, key=lambda each: each[0])
            is_held = (until - self._clock.now()).total_seconds() <= HELD_S
            if is_held and self._turns.holds_sleeps:  # guard: replay-waits-for-nothing
                return
        else:  # People are asked once no child runs any more.
            # guard: children-before-people
            first = children or self._resting.values()
            rest = min(first, key=lambda each: position_of(each.path))
        ahead = _refs_beside(rest, self._resting.values())
        self._stop(replace(rest, ahead=ahead, for_children=bool(children)))

    def _try_again(self) -> bool:
        """Wake what did not fit in the budget when less was recorded; return whether any is."""
        steps = self._turns.steps_recorded
        # guard: unused-reservation-tried-first
        found = [
            rest for rest in self._resting.values() if rest.is_grant and rest.steps_before < steps
        ]
        for rest in found:
            self._wake(rest)
        return bool(found)

    def _differ(self, how: str) -> Interrupted:
        return self._stop(ReplayDiffers(how))

    def _differ_at(self, recorded: StepRecorded | StepAnnounced, asked: Asked) -> Interrupted:
        return self._differ(self._comparison.difference(recorded, asked))

    def _stop(self, why: BaseException | Rest) -> Interrupted:
        """End every branch at its next call, and those at once that wait for an answer."""
        self._why = self._why or why
        self._order.stop()
        for task in self._agents:
            task.cancel()
        for rest in self._resting.values():
            if not rest.over.done():
                rest.over.set_exception(Interrupted())
        return Interrupted()

    def record(self, command: Command) -> None:
        """Record `command`, once it is sure that the replay goes the way that was recorded.

        The function cannot catch that it is refused.
        """
        if not self._order.is_live:  # guard: differing-replay-records-nothing
            self._held.append(command)
            return
        self._record_held()
        try:
            self._turns.record(command)
        except Exception as error:
            raise self._stop(error) from error

    def _record_held(self) -> None:
        held, self._held = self._held, []
        for command in held:
            try:
                self._turns.record(command)
            except Exception as error:  # noqa: BLE001 - nobody is here to raise it to
                self._stop(error)


async def _outside(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns, which is no code of a strategy."""
    IN_STRATEGY.set(False)
    return await work


async def _cleaned_up(task: asyncio.Task[Any]) -> None:
    """Wait until a canceled agent has ended, or may not clean up any longer."""
    _, left = await asyncio.wait({task}, timeout=CLEANUP_S)
    if left:
        log.warning(LEFT, task=task.get_name(), after_s=CLEANUP_S)


def _cut_off(action: OfAgent) -> Performed:
    return Performed(
        kind=StepKind.AGENT,
        fingerprint="",
        tool_name=action.name,
        error_class=CALL_TIMEOUT,
        error_detail=OWN_TIMEOUT,
    )


class _Raised(msgspec.Struct, frozen=True):
    """What a branch raised, as a value: a task that raises a `SystemExit` ends its event loop."""

    error: BaseException


ASKS_TIME: Final = Observe(NOW)

NOW_MARK: Final = fingerprint(ASKS_TIME)


def _refs_beside(rest: Rest, resting: Iterable[Rest]) -> tuple[str, ...]:
    """Return the references, once each, that other branches wait for."""
    waits = [each.action for each in resting if each is not rest]
    refs = dict.fromkeys(each.ref for each in waits if isinstance(each, WaitFor))
    own = rest.action.ref if isinstance(rest.action, WaitFor) else None
    return tuple(ref for ref in refs if ref != own)


def _asked(path: str, action: Step | OfAgent, mark: str, branch: Branch) -> Asked:
    place = place_of_call() or branch.origin
    return Asked(path, action, mark, place, asyncio.Future(), branch.activity)


def _answer(name: str, *, follows: bool) -> Performed:
    return Performed(
        kind=StepKind.OBSERVATION,
        fingerprint=fingerprint(Observe({"changed": name})),
        tool_name="changed",
        args=raw({"name": name}),
        result=NOTHING if follows else REFUSED,
        path=f"{CHANGED}{name}",
    )


def _problem_of_branches(works: Sequence[object]) -> str | None:
    if len(works) > CHILDREN_MAX:
        return f"gather: {len(works):,} branches, the limit is {CHILDREN_MAX:,} children"
    running = sum(not _only_waits(each) for each in works)  # guard: waiting-branches-not-counted
    if running > BRANCHES_MAX:
        return f"gather: {running} branches, the limit is {BRANCHES_MAX}; gather fewer at a time"
    strays = [each for each in works if not inspect.isawaitable(each)]
    if strays:
        return f"gather: a {type(strays[0]).__name__} cannot be awaited; give it ctx.call(…)"
    return None


def _only_waits(work: object) -> bool:
    """Return whether a branch only waits for a child, and runs no code in between."""
    return isinstance(work, PendingCall) and work.is_child


def _close(works: Sequence[object]) -> None:
    """Close coroutines that nobody will await, so that Python does not warn."""
    for each in works:
        if isinstance(each, Coroutine):
            each.close()
