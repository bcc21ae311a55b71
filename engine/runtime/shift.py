"""One go at one episode: serve it to its end, and give the claim up last.

The claim is given up last and on purpose. Whatever goes wrong in between leaves it to lapse,
which calls for recovery: the next owner replays the journal and does what is left.

An episode that was read before it was claimed may have moved meanwhile. That does no harm: the
first commit names the version that was read, and is refused. Only then is it ours, and only
then is whoever offered it told so; until then it stays with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import structlog

from engine.episode import (
    UNOPENED,
    Episode,
)
from engine.runtime.driver import Leaving
from engine.runtime.hold import Busy, Hold
from engine.runtime.keeper import Keeper
from engine.runtime.output_crew import OutputCrew
from engine.runtime.tenure import Tenure
from engine.runtime.turns import Contended
from engine.status import ENDED
from streams.commands import Recover
from streams.errors import LeaseLost, TooLarge, Unavailable, Unwritable, VersionConflict
from streams.events import EndStatus, EpisodeFinished, EpisodeOpened
from streams.keys import episode_claim
from streams.log import Recorded

Accept: TypeAlias = Callable[[], Awaitable[None]]

log = structlog.get_logger("vigil.shift")


@dataclass(frozen=True)
class Shift:
    """One go, of one node."""

    crew: OutputCrew
    keeper: Keeper
    accept: Accept
    """Called once nothing can be lost any more if this node dies: see `Tenure`."""
    called_at: datetime | None = None
    """See `Tenure`."""

    async def open(self, opened: EpisodeOpened) -> bool:
        """Open an episode and run it at once; return whether this node got it.

        Raises:
            Unavailable: the log was away before it was durable that this node has it.
        """
        return await self._run(opened, UNOPENED, (), careful=False)

    async def settle(self, episode: Episode, records: Sequence[Recorded]) -> bool:
        """Carry what is left of the outputs of an episode that has ended; return whether we may.

        Args:
            episode: the fold of `records`; it has ended.
            records: its journal.

        Raises:
            Unavailable: the log was away before the claim was made.
        """
        assert episode.opened is not None, "an end of what was never opened"
        return await self._run(episode.opened, episode, records, careful=True, settles=True)

    async def take_over(
        self, episode: Episode, records: Sequence[Recorded], *, careful: bool
    ) -> bool:
        """Do what is left of an episode; return whether this node got it.

        Args:
            episode: the fold of `records`; it has been opened.
            records: its journal.
            careful: whether it must be claimed and its start durable before any of its code runs,
                so that a crash of that code is counted.

        Raises:
            Unavailable: the log was away before it was durable that this node has it.
        """
        assert episode.opened is not None, "a shift of an episode that was never opened"
        is_over = episode.status in ENDED
        return await self._run(episode.opened, episode, records, careful=careful or is_over)

    async def _run(
        self,
        opened: EpisodeOpened,
        episode: Episode,
        records: Sequence[Recorded],
        *,
        careful: bool,
        settles: bool = False,
    ) -> bool:
        task = asyncio.current_task()
        assert task is not None
        key = episode_claim(opened.actor_id, opened.episode_id)
        hold = Hold(self.keeper, key, attempt=episode.attempts + 1, on_lost=task.cancel)
        tenure = Tenure(
            self.crew,
            opened,
            episode,
            records,
            hold=hold,
            accept=self.accept,
            called_at=self.called_at,
        )
        try:
            if careful:
                await hold.claim()
            await self._work(tenure, hold, careful=careful, settles=settles)
        except Busy:
            return False
        except asyncio.CancelledError:
            if not hold.is_lost:
                raise
            task.uncancel()
            log.warning("stopped: the claim was lost")
        finally:
            hold.let_lapse()
        return tenure.is_fenced or tenure.has_ended or tenure.is_accepted

    async def _work(self, tenure: Tenure, hold: Hold, *, careful: bool, settles: bool) -> None:
        """Do what is left of an episode, and give the claim up unless it is to lapse."""
        if settles:
            may_go = await self._settle(tenure, hold)
        elif tenure.has_ended:
            await tenure.tell_again()
            may_go = True
        else:
            may_go = await self._serve(tenure, hold, careful=careful)
        if may_go:
            has_failed = tenure.has_ended and not settles
            finished = tenure.episode.finished if has_failed else None
            await hold.give_up(error=_failure(finished))

    async def _settle(self, tenure: Tenure, hold: Hold) -> bool:
        """Carry outputs of an episode that has ended, and return whether its claim may be given up.

        If it may not, the claim lapses and calls for the next owner.
        """
        try:
            await tenure.settle()
        except (VersionConflict, LeaseLost) as error:
            hold.note_lost(error)
            return False
        except (Contended, Unavailable) as error:
            log.warning("stopped; what is left is for the next owner", error=str(error))
            return False
        return True

    async def _serve(self, tenure: Tenure, hold: Hold, *, careful: bool) -> bool:
        """Serve a tenure to its end, and return whether its claim may be given up."""
        try:
            await tenure.complete(careful=careful)
        except Leaving:
            return await self._hand_over(tenure)
        except Contended as error:
            log.warning("a finding is fought over; handing the episode over", error=str(error))
            return await self._hand_over(tenure)
        except (VersionConflict, LeaseLost) as error:
            if not tenure.is_fenced:
                return await self._stand_back(tenure, hold)
            hold.note_lost(error)
            return False
        except (TooLarge, Unwritable):
            if tenure.is_fenced:
                raise
            return True
        except Unavailable as error:
            if not tenure.is_fenced:
                raise
            log.warning(
                "stopped: the log is away; what is left is for the next owner", error=str(error)
            )
            return False
        log.debug("episode ended", status=tenure.episode.status.value)
        return True

    async def _stand_back(self, tenure: Tenure, hold: Hold) -> bool:
        """Leave an episode that has moved since it was read; return whether the claim may go.

        A claim that was taken over from a lapsed one has removed the marker of the lapse, and the
        call for recovery may have been answered elsewhere: then nothing else calls for it.
        """
        id_ = f"refused.{hold}"
        return not hold.is_stolen or await self._call(tenure, reason="lapsed", id_=id_)

    async def _hand_over(self, tenure: Tenure) -> bool:
        leave_id = f"leave.{tenure.opened.episode_id}.{tenure.episode.attempts}"
        handed_over = await self._call(tenure, reason="handover", id_=leave_id)
        if handed_over:
            log.info("handed over")
        return handed_over

    async def _call(self, tenure: Tenure, *, reason: str, id_: str) -> bool:
        """Call a node to the episode. Only then may the claim go: its lapse would call, too."""
        opened = tenure.opened
        recover = Recover(actor_id=opened.actor_id, episode_id=opened.episode_id, reason=reason)
        try:
            await self.crew.ports.inbox.send(recover, id=id_)
        except Unavailable as error:
            log.warning("no other node called; the lease will lapse", error=str(error))
            return False
        return True


def _failure(finished: EpisodeFinished | None) -> str:
    """Return why an episode failed; empty if it did not."""
    if finished is None or finished.status is not EndStatus.FAILED:
        return ""
    return f"{finished.error_class}: {finished.error_detail}"
