"""Carries outputs to the outside, for the episode that wants them there.

For each: look → rule → make the next move, until it is settled or nothing can be done before later.
Attempts at delivery are the deliverer's.

Every commit names the version that it was decided on, so of two who carry one output only one
writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from engine import telemetry
from engine.delivering import Attempt, Fail, Later, Move, Propose, Settled, next_move
from engine.output import Output, is_own
from engine.output_publicity import output_news
from engine.proposal import idempotency_key, proposal
from engine.publicity import PublicEvent
from engine.route import Retries
from engine.runtime.carried import Carried
from engine.runtime.deliverer import Deliverer
from engine.runtime.outlets import Outlet
from engine.runtime.output_crew import OutputCrew
from engine.runtime.output_letters import note_gone_on, write_failed
from engine.runtime.parcel import Overtaken, Parcel
from engine.runtime.turns import CONFLICTS_MAX, Contended
from engine.runtime.undertaker import Undertaker
from streams.errors import VersionConflict
from streams.events import (
    EpisodeOpened,
    OutputCanceled,
    OutputEvent,
    OutputForgone,
    OutputProposed,
)
from streams.log import START
from streams.outputs import OUTCOMES, OutputIntent, OutputOutcome, OutputStatus


@dataclass(frozen=True)
class Courier:
    """Carries the outputs of one episode, on one node."""

    crew: OutputCrew
    opened: EpisodeOpened
    pen: str
    """Unique for ever: commits are named after it."""
    check_claim: Callable[[], None]
    """Raises `LeaseLost` once the claim cannot be trusted any more."""
    called_at: datetime | None = None
    """When this node was called because something may be due, by the server's clock. A clock that
    is behind that would find nothing due, and have it called again at once, over and over."""

    async def carry(
        self,
        key: str,
        intent: OutputIntent | None,
        *,
        is_new: bool = False,
        retells: bool = False,
    ) -> Carried:
        """Carry one output as far as it gets now.

        Args:
            key: the output's.
            intent: what is wanted; None: it is carried only if it was proposed.
            is_new: whether nobody can have begun with it for this episode.
            retells: whether all that has happened to it is news, for it may not have been told.

        Raises:
            LeaseLost, VersionConflict: another node may carry it, or does.
            Contended: its log is fought over without end.
            TooLarge, Unwritable: its log cannot keep it.
            Unavailable: the log is away.
        """
        parcel = self._parcel(key)
        if not is_new:
            await parcel.read()
        for _ in range(CONFLICTS_MAX):
            self.check_claim()
            try:
                done = await self._move(parcel, intent)
            except Overtaken:
                await parcel.read()
            else:
                if done is not None:
                    await note_gone_on(self.crew.ports, self.crew.clock, parcel.history)
                    return self._carried(parcel, done, retells=retells)
        raise Contended(f"output {key!r}: lost {CONFLICTS_MAX} races for it")

    async def look(self, key: str) -> Carried:
        """Return how far an output has got, and do nothing about it. All of it is news.

        Raises:
            Unavailable: the log is away.
        """
        parcel = self._parcel(key)
        await parcel.read()
        move = self._next(parcel, Retries())
        if isinstance(move, Settled):
            await self._bury(parcel)
        if isinstance(move, Settled | Later):
            return self._carried(parcel, move, retells=True)
        if isinstance(move, Propose):
            return self._carried(parcel, _dropped(key), retells=True)
        return self._carried(parcel, Later(self._now()), retells=True)

    async def is_retried(self, key: str) -> bool:
        """Return whether a person has had an output tried again.

        Raises:
            Unavailable: the log is away.
        """
        parcel = self._parcel(key)
        await parcel.read()
        return parcel.output.retries > 0

    async def cancel(
        self, key: str, intent: OutputIntent | None, *, reason: str, retells: bool = False
    ) -> Carried:
        """Have an output not be delivered, unless it is settled.

        It is written down also of what nobody has proposed: whoever stood still since they were
        about to is refused, and finds that.

        Args:
            key: the output's.
            intent: what was wanted, if that is known.
            reason: why, for people.
            retells: as for `carry`.

        Raises:
            Contended: its log is fought over without end.
            Unavailable: the log is away.
        """
        parcel = self._parcel(key)
        for _ in range(CONFLICTS_MAX):
            await parcel.read()
            move = self._next(parcel, Retries())
            if isinstance(move, Settled):
                return self._carried(parcel, move, retells=retells)
            try:
                await parcel.append(*self._ending(parcel, move, intent, reason=reason))
            except VersionConflict:
                continue
            return self._carried(parcel, _dropped(key), retells=retells)
        raise Contended(f"output {key!r}: lost {CONFLICTS_MAX} races for it")

    def _ending(
        self, parcel: Parcel, move: Move, intent: OutputIntent | None, *, reason: str
    ) -> tuple[OutputEvent, ...]:
        """Return what says that an output is not to be delivered for this episode.

        What has failed for others stays theirs: a person may have it tried again.
        """
        canceled = OutputCanceled(reason=reason)
        if not isinstance(move, Propose):
            return (canceled,)
        if intent is None or parcel.output.status is OutputStatus.FAILED:
            return (self._forgone,)
        return (self._proposal(parcel, intent, move), canceled)

    @property
    def _forgone(self) -> OutputForgone:
        return OutputForgone(episode_id=self.opened.episode_id)

    @property
    def _deliverer(self) -> Deliverer:
        return Deliverer(self.crew, self.check_claim)

    def _proposal(self, parcel: Parcel, intent: OutputIntent, move: Propose) -> OutputProposed:
        now, number = self.crew.clock.now(), move.proposal_no
        return proposal(intent, parcel.key, self.opened, proposal_no=number, at=now)

    def _parcel(self, key: str) -> Parcel:
        mark = idempotency_key(self.crew.ports.stack.name, key)
        return Parcel(self.crew.ports, self.crew.clock, key, pen=f"{self.pen}.{mark}")

    def _is_ours(self, output: Output) -> bool:
        return is_own(output, episode_id=self.opened.episode_id)

    def _next(self, parcel: Parcel, retries: Retries) -> Move:
        return next_move(
            parcel.output,
            parcel.key,
            episode_id=self.opened.episode_id,
            attempts_max=retries.attempts_max,
            at=self._now(),
        )

    def _now(self) -> datetime:
        now = self.crew.clock.now()
        return now if self.called_at is None else max(now, self.called_at)

    async def _move(self, parcel: Parcel, intent: OutputIntent | None) -> Settled | Later | None:
        """Make the next move; return it if it was the last one for now."""
        outlet = self._outlet(parcel.output, intent)
        move = self._next(parcel, outlet.route.retries if outlet else Retries())
        match move:
            case Settled():
                await self._bury(parcel)
                return move
            case Later():
                return move
            case Propose():
                if intent is not None:
                    proposed = self._proposal(parcel, intent, move)
                    return await self._deliverer.propose(parcel, outlet, proposed)
                # It was announced, and nobody came to propose it.
                await parcel.write(self._forgone)
            case Attempt():
                return await self._deliverer.attempt(parcel, outlet)
            case Fail(event=failed):
                await parcel.write(failed)
        return None

    def _outlet(self, output: Output, intent: OutputIntent | None) -> Outlet | None:
        said = output.proposed if self._is_ours(output) else intent
        return self.crew.outlets.of(said.adapter) if said else None

    async def _bury(self, parcel: Parcel) -> None:
        """Keep a dead letter of what has failed for good; doing so again changes nothing.

        Others may have proposed it anew before whoever saw it fail had come as far as this.
        """
        proposal = parcel.proposal_of(self.opened.episode_id)
        if proposal is not None and proposal.output.status is OutputStatus.FAILED:
            await write_failed(Undertaker(self.crew.ports, self.crew.clock), proposal.output)

    def _carried(self, parcel: Parcel, last: Settled | Later, *, retells: bool) -> Carried:
        output, proposal = parcel.output, parcel.proposal_of(self.opened.episode_id)
        outcome = last.outcome if isinstance(last, Settled) else None
        news: list[PublicEvent] = []
        if proposal is not None:
            known = START if retells or parcel.since is None else parcel.since
            since = proposal.told_until(known)
            news = output_news(self.opened, proposal.proposed, proposal.history, since=since)
        if outcome is not None and proposal is not None:
            self._free_place(proposal.proposed.adapter, parcel.key)
        if outcome is not None and parcel.version > (parcel.since or START):
            adapter = proposal.proposed.adapter if proposal else ""
            telemetry.outputs.add(1, {"adapter": adapter, "outcome": outcome.outcome})
        return Carried(
            key=parcel.key,
            outcome=outcome,
            status=outcome.outcome if outcome else str(output.status),
            wakes_at=last.at if isinstance(last, Later) else None,
            news=tuple(news),
        )

    def _free_place(self, adapter: str, key: str) -> None:
        """Have nobody wait behind an output that is settled."""
        outlet = self.crew.outlets.of(adapter)
        if outlet is not None:
            outlet.throttle.forget(key)


def _dropped(key: str) -> Settled:
    return Settled(OutputOutcome(output_key=key, outcome=OUTCOMES[OutputStatus.CANCELED]))
