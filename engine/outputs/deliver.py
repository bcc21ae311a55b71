"""Delivers the outputs of one episode: read → decide → make the next move, until none is left now.

An attempt is on the log before the adapter is called, so after a crash in the middle the next node
sees it and repeats the delivery with the same idempotency key. A node that was frozen in between
may call the adapter once more than is recorded: receivers that must act once have to honour the
key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

import structlog

from engine import telemetry
from engine.app.actions import Retries
from engine.app.outputs import DeliveryFailed, OutputView, missing
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes.attempt import Attempt
from engine.episodes.episode import CancelEpisode, Finish
from engine.outputs.dead_letters import note_gone_on, write_failed
from engine.outputs.decide import (
    FailDelivery,
    Later,
    Move,
    Propose,
    Settled,
    TryDelivery,
    after_failure,
    lacked,
    next_move,
)
from engine.outputs.keys import idempotency_key, proposal
from engine.outputs.output import Output, is_own
from engine.outputs.pool import AdapterPool, PooledAdapter
from engine.outputs.rate_limit import PLACE_S
from engine.outputs.store import OutputStore
from engine.runtime.claim import EpisodeClaim
from engine.runtime.context import ActorContext
from engine.runtime.store import Overtaken
from engine.usercode.call import in_text
from engine.validation import backoff_s, finite, jittered_s
from streams.clock import Clock
from streams.errors import Unavailable, VersionConflict
from streams.json import unraw
from streams.model.events import (
    EpisodeDeferred,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputEvent,
    OutputFailed,
    OutputForgone,
    OutputPostponed,
    OutputProposed,
)
from streams.model.findings import FindingOutcome
from streams.model.outputs import OUTCOMES, OutputIntent, OutputOutcome, OutputStatus

AttemptOutcome: TypeAlias = OutputDelivered | OutputPostponed | OutputFailed
"""The result of an attempt."""

log = structlog.get_logger("vigil.outputs")

MOVES_MAX: Final = 16
"""Most moves with one output in a row: proposing, attempting and giving up are three."""

CLASS_CHARS_MAX: Final = 100
"""Longest error class of an adapter that is kept, in characters: the end of an episode has those of
all its outputs in one event."""

_OUTCOMES_OF: Final[Mapping[type[AttemptOutcome], str]] = {
    OutputDelivered: "delivered",
    OutputPostponed: "postponed",
    OutputFailed: "failed",
}


async def make_attempt(
    pooled: PooledAdapter, output: Output, *, clock: Clock, stack: str
) -> AttemptOutcome:
    """Call the adapter for an output with a recorded attempt, and return the result."""
    view = _view(output, stack)
    began_s = clock.monotonic_s()
    came: AttemptOutcome
    try:
        ref = await pooled.deliver(view)
    except DeliveryFailed as failed:
        came = _after(output, failed, pooled, clock)
    else:
        came = OutputDelivered(attempt=output.attempts, delivered_ref=ref)
    labels = {"adapter": view.adapter, "outcome": _OUTCOMES_OF[type(came)]}
    telemetry.output_attempts.add(1, labels)
    telemetry.output_duration.record(clock.monotonic_s() - began_s, labels)
    _log(view, came)
    return came


def _log(view: OutputView, came: AttemptOutcome) -> None:
    said = {"adapter": view.adapter, "output_key": view.output_key, "attempt": view.attempt}
    match came:
        case OutputDelivered():
            log.info("delivered", **said)
        case OutputPostponed(error_class=error_class, error_detail=detail, retry_at=at):
            said |= {"error_class": error_class, "detail": detail}
            log.warning("not delivered; tried again", **said, retry_at=str(at))
        case OutputFailed(error_class=error_class, error_detail=detail):
            log.warning("not delivered", **said, error_class=error_class, detail=detail)


def _after(
    output: Output, failed: DeliveryFailed, pooled: PooledAdapter, clock: Clock
) -> OutputPostponed | OutputFailed:
    retries, key = pooled.route.retries, output.proposed.output_key if output.proposed else ""
    tries = max(1, output.attempts_counted)
    pause_s = backoff_s(tries, first_s=retries.first_s, most_s=retries.most_s)
    return after_failure(
        output,
        error_class=in_text(failed.error_class)[:CLASS_CHARS_MAX],  # guard: error-class-cut
        detail=in_text(failed.detail),
        is_permanent=bool(failed.permanent),
        attempts_max=retries.attempts_max,
        pause_s=jittered_s(pause_s, seed=f"{key}.{output.attempts}"),
        retry_after_s=finite(failed.retry_after_s),
        at=clock.now(),
    )


def _view(output: Output, stack: str) -> OutputView:
    proposed = output.proposed
    assert proposed is not None, "what is delivered was proposed"
    return OutputView(
        output_key=proposed.output_key,
        adapter=proposed.adapter,
        payload=unraw(proposed.payload),
        idempotency_key=idempotency_key(stack, proposed.output_key),
        attempt=output.attempts,
        episode_id=proposed.episode_id,
        actor_id=proposed.actor_id,
        expectation_id=proposed.expectation_id,
        stack=stack,
    )


@dataclass(frozen=True)
class DeliveryState:
    """How far an output has got."""

    key: str
    outcome: OutputOutcome | None
    """None: it is not settled."""
    status: str
    """The outcome, or its present status."""
    wakes_at: datetime | None
    """When it is to be looked at again; None: when somebody decides, or never."""


@dataclass(frozen=True, kw_only=True)
class ConclusionState:
    """How far the outputs of an episode have got."""

    findings: tuple[FindingOutcome, ...] = ()
    outputs: tuple[OutputOutcome, ...] = ()
    """Those that are settled."""
    pending: tuple[str, ...] = ()
    """Keys of the others."""
    wakes_at: datetime | None = None
    """When something is due about those; None: when somebody decides."""
    canceled: CancelEpisode | None = None
    """How the episode ends instead, if outputs were canceled with it."""

    @property
    def end(self) -> Finish | EpisodeDeferred | CancelEpisode:
        """What the episode records."""
        if self.canceled is not None:
            return self.canceled
        if self.pending:
            return EpisodeDeferred(
                findings=self.findings, outputs=self.outputs, pending=self.pending
            )
        return Finish(findings=self.findings, outputs=self.outputs)


NOTHING_DONE: Final = ConclusionState()


def added_up(
    progress: Iterable[DeliveryState],
    *,
    known: Mapping[str, OutputOutcome] | None = None,
    order: Iterable[str] = (),
) -> ConclusionState:
    """Return the state of all outputs, in `order`, with what is `known` of others."""
    by_key = {one.key: one for one in progress}
    outcomes = dict(known or {})
    outcomes |= {key: one.outcome for key, one in by_key.items() if one.outcome is not None}
    keys = list(dict.fromkeys((*order, *outcomes)))
    wakes = [one.wakes_at for one in by_key.values() if one.wakes_at is not None]
    return ConclusionState(
        outputs=tuple(outcomes[key] for key in keys if key in outcomes),
        pending=tuple(key for key, one in by_key.items() if one.outcome is None),
        wakes_at=min(wakes, default=None),
    )


@dataclass(frozen=True)
class DeliveryAttempts:
    """Makes the attempts of one episode, on one node."""

    context: ActorContext
    claim: EpisodeClaim

    async def propose(
        self, output_store: OutputStore, pooled: PooledAdapter | None, proposed: OutputProposed
    ) -> Later | None:
        """Propose an output, with the first attempt if that can be made at once.

        Return when the next attempt is due; None: decide on the next move now. On `LeaseLost` or
        `VersionConflict` another node may have the episode, or has.
        """
        may_go = proposed.approval is None and self.context.may_go_on.is_given
        if pooled is None or not may_go or not pooled.throttle.try_enter(output_store.key):
            await output_store.append(proposed)
            return None
        return await self._deliver(output_store, pooled, proposed)

    async def attempt(
        self, output_store: OutputStore, pooled: PooledAdapter | None, *, at: datetime
    ) -> Later | None:
        """Make an attempt; `pooled` None: the app has no such adapter. Otherwise as `propose`."""
        if pooled is None:
            return await self._leave_to_others(output_store, at=at)
        runs, throttle = self.context.may_go_on, pooled.throttle
        # Who has just come must not overtake all those who were sent away before.
        has_just_come = output_store.has_written
        # guard: newcomer-overtakes-nobody
        is_soon = not has_just_come or throttle.is_open_to_new(within_s=PLACE_S)
        has_place = (
            runs.is_given
            and is_soon
            and await throttle.enter(output_store.key, within_s=PLACE_S, unless=runs.withdrawn)
        )
        if has_place:
            return await self._deliver(output_store, pooled)
        pause_s = throttle.send_away_s(output_store.key) if runs.is_given else 0.0
        return Later(self.context.clock.now() + timedelta(seconds=pause_s))

    async def _leave_to_others(self, output_store: OutputStore, *, at: datetime) -> Later | None:
        """Put off an output whose adapter only another node may have, or fail it in the end."""
        output = output_store.output
        assert output.proposed is not None, "what is attempted was proposed"
        came = lacked(output, detail=missing(output.proposed.adapter), at=at)
        await output_store.append(came)
        if not output.lacks or isinstance(came, OutputFailed):
            _log(_view(output, self.context.ports.stack.name), came)
        return Later(came.retry_at) if isinstance(came, OutputPostponed) else None

    async def _deliver(
        self, output_store: OutputStore, pooled: PooledAdapter, *first: OutputProposed
    ) -> Later | None:
        """Make an attempt in a slot that was taken for it; record `first` with it."""
        try:
            number = 1 if first else output_store.output.attempts + 1
            await output_store.append(
                *first, OutputAttempted(attempt=number, node=self.context.node)
            )
            # No version can take a call back: a node that was frozen must not make it now.
            self.claim.check()  # guard: no-adapter-under-lapsed-claim
            came = await make_attempt(
                pooled,
                output_store.output,
                clock=self.context.clock,
                stack=self.context.ports.stack.name,
            )
        finally:
            pooled.throttle.leave()
        try:
            await output_store.append(came)
        except Overtaken as error:
            # That is another owner's doing: this node has lost the episode.
            raise VersionConflict(output_store.subject, expected=output_store.version) from error
        return Later(came.retry_at) if isinstance(came, OutputPostponed) else None


@dataclass(frozen=True)
class OutputDelivery:
    """Delivers the outputs of one episode, on one node."""

    context: ActorContext
    adapters: AdapterPool
    attempt: Attempt
    writer_id: str
    """Unique for ever: ids of commits begin with it."""

    async def carry(
        self, key: str, intent: OutputIntent | None, *, is_new: bool = False
    ) -> DeliveryState:
        """Make all moves with one output that are possible now.

        Without `intent` only a proposed output is moved. `is_new`: no node can have begun with it
        for this episode.

        Raises:
            LeaseLost, VersionConflict: another node may have the episode, or has.
            TooLarge, Unwritable: the log cannot keep the output.
        """
        output_store = self._output_store(key)
        done = await output_store.retry(
            partial(self._move_on, output_store, intent), is_known=is_new
        )
        # guard: others-proposal-settles-letter
        await note_gone_on(self.context.ports, self.context.clock, output_store.history)
        return self._progress(output_store, done)

    async def state(self, key: str) -> DeliveryState:
        """Return how far an output has got, and change nothing."""
        output_store = self._output_store(key)
        await output_store.read()
        move = self._next(output_store, Retries())
        if isinstance(move, Settled):  # guard: looker-writes-letter
            await self._write_dead_letter(output_store)
        if isinstance(move, Settled | Later):
            return self._progress(output_store, move)
        if isinstance(move, Propose):
            return self._progress(output_store, _dropped(key))
        return self._progress(output_store, Later(self._now()))

    async def is_retried(self, key: str) -> bool:
        """Return whether a person has retried an output."""
        output_store = self._output_store(key)
        await output_store.read()
        return output_store.output.retries > 0

    async def cancel(self, key: str, intent: OutputIntent | None, *, reason: str) -> DeliveryState:
        """Cancel an output unless it is settled."""
        # It is recorded even if nothing was proposed: a node that was frozen before its proposal is
        # then refused, and finds that.
        output_store = self._output_store(key)

        async def settle() -> Settled:
            move = self._next(output_store, Retries())
            if isinstance(move, Settled):
                return move
            await output_store.append(*self._ending(output_store, move, intent, reason=reason))
            return _dropped(key)

        settled = await output_store.retry(settle)
        return self._progress(output_store, settled)

    def _ending(
        self, output_store: OutputStore, move: Move, intent: OutputIntent | None, *, reason: str
    ) -> tuple[OutputEvent, ...]:
        """Return the events that cancel an output for this episode."""
        # What has failed for another episode stays as it is: a person may retry it.
        canceled = OutputCanceled(reason=reason)
        if not isinstance(move, Propose):
            return (canceled,)
        if intent is None or output_store.output.status is OutputStatus.FAILED:
            return (self._forgone,)
        # guard: unproposed-cancelled-too
        return (self._proposal(output_store, intent, move), canceled)

    @property
    def _forgone(self) -> OutputForgone:
        return OutputForgone(episode_id=self.attempt.opened.episode_id)

    @property
    def _attempts(self) -> DeliveryAttempts:
        return DeliveryAttempts(self.context, self.attempt.claim)

    def _proposal(
        self, output_store: OutputStore, intent: OutputIntent, move: Propose
    ) -> OutputProposed:
        now, number = self.context.clock.now(), move.proposal_no
        return proposal(intent, output_store.key, self.attempt.opened, proposal_no=number, at=now)

    def _output_store(self, key: str) -> OutputStore:
        mark = idempotency_key(self.context.ports.stack.name, key)
        return OutputStore(
            self.context.ports, self.context.clock, key, writer_id=f"{self.writer_id}.{mark}"
        )

    def _is_ours(self, output: Output) -> bool:
        return is_own(output, episode_id=self.attempt.opened.episode_id)

    def _next(self, output_store: OutputStore, retries: Retries | None) -> Move:
        return next_move(
            output_store.output,
            output_store.key,
            episode_id=self.attempt.opened.episode_id,
            attempts_max=retries.attempts_max if retries else None,
            at=self._now(),
        )

    def _now(self) -> datetime:
        now = self.context.clock.now()
        called_at = self.attempt.called_at
        # By a slower clock nothing would be due, and the node would be called again at once, over
        # and over.
        # guard: due-by-server-clock
        return now if called_at is None else max(now, called_at)

    async def _move_on(
        self, output_store: OutputStore, intent: OutputIntent | None
    ) -> Settled | Later:
        for _ in range(MOVES_MAX):
            self.attempt.claim.check()
            done = await self._move(output_store, intent)
            if done is not None:
                return done
        raise Unavailable(output_store.subject, detail=f"not settled after {MOVES_MAX} moves")

    async def _move(
        self, output_store: OutputStore, intent: OutputIntent | None
    ) -> Settled | Later | None:
        pooled = self._pooled(output_store.output, intent)
        move = self._next(output_store, pooled.route.retries if pooled else None)
        match move:
            case Settled():
                await self._write_dead_letter(output_store)
                return move
            case Later():
                return move
            case Propose():
                if intent is not None:
                    proposed = self._proposal(output_store, intent, move)
                    return await self._attempts.propose(output_store, pooled, proposed)
                # It was announced, and nobody came to propose it.
                await output_store.append(self._forgone)  # guard: stalled-announce-not-proposed
            case TryDelivery():
                # guard: lacked-until-by-server-clock
                return await self._attempts.attempt(output_store, pooled, at=self._now())
            case FailDelivery(event=failed):
                await output_store.append(failed)
        return None

    def _pooled(self, output: Output, intent: OutputIntent | None) -> PooledAdapter | None:
        said = output.proposed if self._is_ours(output) else intent
        return self.adapters.of(said.adapter) if said else None

    async def _write_dead_letter(self, output_store: OutputStore) -> None:
        """Write a dead letter for what has failed for good; safe to repeat."""
        output = output_store.output
        if not self._is_ours(output):
            # Another episode may have proposed it again since this proposal failed.
            proposal = output_store.proposal_of(self.attempt.opened.episode_id)
            if proposal is None:
                return
            output = proposal.output  # guard: failure-letter-despite-proposal
        if output.status is OutputStatus.FAILED:  # guard: final-failure-is-letter
            await write_failed(DeadLetterWriter(self.context.ports, self.context.clock), output)

    def _progress(self, output_store: OutputStore, last: Settled | Later) -> DeliveryState:
        outcome = last.outcome if isinstance(last, Settled) else None
        if outcome is not None:
            self._note_settled(output_store, outcome)
        return DeliveryState(
            key=output_store.key,
            outcome=outcome,
            status=outcome.outcome if outcome else str(output_store.output.status),
            wakes_at=last.at if isinstance(last, Later) else None,
        )

    def _note_settled(self, output_store: OutputStore, outcome: OutputOutcome) -> None:
        """Free the output's place in line, and count its outcome if this node has written it."""
        proposal = output_store.proposal_of(self.attempt.opened.episode_id)
        adapter = proposal.proposed.adapter if proposal else ""
        pooled = self.adapters.of(adapter) if proposal else None
        if pooled is not None:
            pooled.throttle.forget(output_store.key)  # guard: settled-blocks-nobody
        if output_store.has_written:  # guard: settled-counted-by-writer
            telemetry.outputs.add(1, {"adapter": adapter, "outcome": outcome.outcome})


def _dropped(key: str) -> Settled:
    return Settled(OutputOutcome(output_key=key, outcome=OUTCOMES[OutputStatus.CANCELED]))
