"""`Attempt`: one attempt of one node at one episode, and how far it has got.

`docs/ARCHITECTURE.md` draws its states, from the table below.

Fenced means that the first commit is durable: no other node can append to the journal any more. The
claim is made before that commit, or before anything else where a crash of the code has to be
noticed. An attempt is **secured** once a crash of its node loses nothing: it is fenced under a
claim, or done. The attempt then acknowledges its cause. If it has not begun, its caller hands the
cause back.

An episode that ends with its first commit needs no claim: the version admits one writer, and until
its end is published the cause is unacknowledged and comes again. Of any other a node's death has to
be noticed. For a first attempt the lease of its node stands for a claim, and its start says so:
whoever follows the journal sees which episodes that node had not ended when its lease did. The
attempt gets a claim of its own when it is older than `GROWN_S`, or before a commit after which its
journal does not show any more that something is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from typing import Final, Protocol

from engine.episodes.episode import RUNS, CancelEpisode, Episode
from engine.runtime.claim import NO_CLAIM, Busy, EpisodeClaim
from streams.errors import LeaseLost
from streams.keys import node_claim
from streams.model.events import (
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeDeferred,
    EpisodeEvent,
    EpisodeFinished,
    EpisodeOpened,
    LogEvent,
)

WISHES_MAX: Final = 100_000
"""Canceled episodes that a node remembers before they run there; the oldest is forgotten first. The
command cancels it once it is delivered again.
"""


def needs_claim(events: Sequence[LogEvent], *, has_outputs_left: bool) -> bool:
    """Return whether a commit leaves something to do that does not show in the journal after it.

    `has_outputs_left`: whether the episode has outputs whose delivery nobody has settled.
    """
    return any(
        isinstance(event, EpisodeBlocked | EpisodeDeferred)
        or (isinstance(event, EpisodeConverged) and bool(event.outputs))
        or (isinstance(event, EpisodeFinished) and has_outputs_left)
        for event in events
    )


def cover_of(episode: Episode) -> tuple[str, datetime] | None:
    """Return the lease that stands for the claim of a running attempt: its key, and since when."""
    since = episode.node_lease_since
    if since is None or episode.status not in RUNS:
        return None
    return node_claim(episode.node), since


class AttemptState(Enum):
    """How far an attempt has got. The last four are its result."""

    NEW = "new"
    CLAIMED = "claimed"
    FENCED = "fenced"
    """The first commit is durable."""
    DONE = "done"
    """All that can be done now is done."""
    HANDED_OVER = "handed_over"
    """Another node is called to the rest."""
    LOST = "lost"
    """Another node does the rest, or the lease lapses and calls one."""
    NOT_BEGUN = "not_begun"
    """This attempt has written nothing to the journal: the cause is handed back."""


ATTEMPT_TRANSITIONS: Final[Mapping[AttemptState, frozenset[AttemptState]]] = {
    AttemptState.NEW: frozenset(
        {AttemptState.CLAIMED, AttemptState.FENCED, AttemptState.NOT_BEGUN}
    ),
    AttemptState.CLAIMED: frozenset(
        {AttemptState.FENCED, AttemptState.DONE, AttemptState.LOST, AttemptState.NOT_BEGUN}
    ),
    AttemptState.FENCED: frozenset(
        {AttemptState.DONE, AttemptState.HANDED_OVER, AttemptState.LOST}
    ),
}


class Interruptible(Protocol):
    """What a cancellation stops."""

    def cut_off(self) -> None:
        """Cut off the code of users, now or as soon as no write is on its way."""


class AttemptCause(Protocol):
    """What an attempt is begun for: a command, or a part of an event."""

    async def ack(self) -> None:
        """Acknowledge it: a crash of this node loses nothing any more."""


class Attempt:
    """One attempt. Everything that works on its episode shares it."""

    def __init__(
        self,
        opened: EpisodeOpened,
        claim: EpisodeClaim,
        cause: AttemptCause,
        *,
        claims_first: bool = False,
        called_at: datetime | None = None,
        on_only_commit: Callable[[], object] | None = None,
    ) -> None:
        """Begin with nothing done.

        Args:
            claims_first: the claim and the start are durable before any code of users runs, so
                that a crash of it counts. Otherwise both may share a commit with what follows, and
                are awaited only before the first side effect.
            called_at: when the timer that called this node fired, by the server's clock; None: it
                was called for another reason.
            on_only_commit: the episode has no place in its lane: it may only be written if all of
                it is one commit, before which this is called. Otherwise the attempt ends before
                its first, as not begun. None: it has a place, or needs none.
        """
        self.opened, self.claim, self._cause = opened, claim, cause
        self.claims_first, self.called_at = claims_first, called_at
        self._on_only_commit = on_only_commit
        self.state = AttemptState.NEW
        self.is_secured = False
        """Whether a crash of this node loses nothing, so that the cause is being acknowledged."""
        self.canceled: CancelEpisode | None = None
        """Why the episode is to be canceled, by the first request; None: it is not."""
        self.calling: list[str] = []
        """The tools that are called now, as `capability.action`, oldest first."""
        self._code: Interruptible | None = None

    @property
    def is_placeless(self) -> bool:
        """Whether the episode has no place in its lane, and gets none by this attempt."""
        return self._on_only_commit is not None

    def move(self, state: AttemptState) -> None:
        """Note how far the attempt has got."""
        assert state in ATTEMPT_TRANSITIONS.get(self.state, ()), (
            f"{self.state.value} ──▶ {state.value}"
        )
        self.state = state

    async def note_fenced(self) -> None:
        """Note that the first commit is durable; from then on a claim that lapses is noticed."""
        self.move(AttemptState.FENCED)
        if self.claim.stands:  # guard: wakened-waits-until-told
            await self.secure()

    async def finish(self) -> None:
        """Note that all is done that can be done now."""
        self.move(AttemptState.DONE)
        await self.secure()

    def lose(self) -> None:
        """Note that the rest, or all of it, is for another node, unless all is done."""
        if self.state not in ATTEMPT_TRANSITIONS:
            return
        is_begun = self.state is AttemptState.FENCED or self.is_secured
        self.move(AttemptState.LOST if is_begun else AttemptState.NOT_BEGUN)

    async def secure(self) -> None:
        """Acknowledge the cause, once: a crash of this node loses nothing any more."""
        if not self.is_secured:
            self.is_secured = True
            await self._cause.ack()

    async def make_claim(self) -> None:
        """Make the claim, unless it was made before.

        Raises:
            Busy: another node has it, and has begun; or the episode has no place in its lane.
            LeaseLost: another node has it, though this one has begun.
        """
        if self.claim.held is not None:
            return
        if self.is_placeless:  # guard: placeless-episode-one-commit
            raise Busy(str(self.claim))
        try:
            await self.claim.make()
        except Busy:
            if self.state is AttemptState.FENCED:
                raise LeaseLost(str(self.claim), revision=NO_CLAIM) from None
            raise
        if self.state is AttemptState.NEW:
            self.move(AttemptState.CLAIMED)

    async def claim_for(
        self, events: Sequence[EpisodeEvent], *, has_outputs_left: bool = False
    ) -> None:
        """Make the claim before a commit of `events`, if there has to be one of its own by then.

        Raises:
            Busy: another node has the claim.
            LeaseLost: the claim cannot be trusted any more.
        """
        leaves = needs_claim(events, has_outputs_left=has_outputs_left)
        if self.state is AttemptState.FENCED:
            if leaves:  # guard: waiting-episode-claimed
                await self.make_claim()
            return
        # guard: continued-episode-claimed
        is_all = any(isinstance(event, EpisodeFinished) for event in events)
        if is_all and self.claim.held is None:
            if self._on_only_commit is not None:
                self._on_only_commit()
            return
        if leaves or self.claim.held is not None or not self.claim.cover():
            await self.make_claim()
        self.claim.check()  # guard: acknowledged-after-fence

    def cancel(self, end: CancelEpisode) -> None:
        """End the episode this way, unless it is too late."""
        if self.canceled is not None:
            return
        self.canceled = end
        if self._code is not None:
            self._code.cut_off()  # guard: waiting-code-interrupted

    @contextmanager
    def running(self, code: Interruptible) -> Iterator[None]:
        """Have a cancellation cut off `code` within the context."""
        self._code = code
        try:
            yield
        finally:
            self._code = None


class RunningEpisodes:
    """The episodes that a node runs, and those that are to be canceled."""

    def __init__(self) -> None:
        self._attempts: dict[str, Attempt] = {}
        self._wishes: dict[str, CancelEpisode] = {}

    @contextmanager
    def during(self, attempt: Attempt) -> Iterator[None]:
        """Register `attempt` within the context; an earlier cancellation applies at once."""
        episode_id = attempt.opened.episode_id
        self._attempts[episode_id] = attempt
        if episode_id in self._wishes:  # guard: cancel-wish-from-start
            attempt.cancel(self._wishes[episode_id])
        try:
            yield
        finally:
            # A node that lost an episode and has it again meanwhile runs the newer one.
            if self._attempts.get(episode_id) is attempt:
                del self._attempts[episode_id]

    def of(self, actor_id: str, expectation_id: str) -> list[Attempt]:
        """Return the attempts at episodes of one expectation."""
        wanted = (actor_id, expectation_id)
        return [
            each
            for each in self._attempts.values()
            if (each.opened.actor_id, each.opened.expectation_id) == wanted
        ]

    @property
    def attempts(self) -> Sequence[Attempt]:
        """All that run now, oldest first."""
        return list(self._attempts.values())

    def wish(self, episode_id: str, end: CancelEpisode) -> bool:
        """Cancel an episode if it runs here, now or later; return whether it runs now."""
        # guard: cancel-wishes-max
        if episode_id not in self._wishes and len(self._wishes) >= WISHES_MAX:
            del self._wishes[next(iter(self._wishes))]
        self._wishes.setdefault(episode_id, end)
        attempt = self._attempts.get(episode_id)
        if attempt is not None:
            attempt.cancel(end)
        return attempt is not None

    def forget(self, episode_id: str) -> None:
        """Forget the cancellation of an episode that has ended."""
        self._wishes.pop(episode_id, None)
