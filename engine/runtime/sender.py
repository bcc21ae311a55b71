"""Sends outputs as steps of an episode: one attempt now, and what is left when it converges.

The step is announced with the output's key before anything is proposed, and recorded with how far
it got. A crash in between leaves the announcement: the next owner carries the same output on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from engine.actions import SendOutput
from engine.commands import Announce, Cancel, Performed
from engine.episode import Episode
from engine.fingerprint import fingerprint
from engine.proposal import checked_intent, idempotency_key, inline_key
from engine.publicity import PublicEvent
from engine.runtime.carrier import Carrier
from engine.runtime.performer import sent
from engine.runtime.usercode import call
from streams.events import EpisodeOpened, StepKind
from streams.outputs import OutputResult


@dataclass(frozen=True)
class Sender:
    """Sends the outputs of one episode, on one node."""

    carrier: Carrier
    opened: EpisodeOpened
    tell: Callable[[Sequence[PublicEvent]], Awaitable[None]]
    retells: Callable[[], bool]
    """Whether what was done to outputs before may not have been told."""

    async def announcement(self, action: SendOutput, *, turn: int) -> Announce:
        """Return what says that an output is about to be proposed.

        Raises:
            EpisodeFailed: the strategy asks for an output that cannot be.
        """
        intent = await call(checked_intent, action.intent)
        key = await call(inline_key, action, self.opened, turn=turn)
        return Announce(
            fingerprint=fingerprint(action),
            tool_name=f"{StepKind.OUTPUT.value}.{intent.adapter}",
            idempotency_key=idempotency_key(self.carrier.crew.ports.stack.name, key),
            output_key=key,
        )

    async def send(self, action: SendOutput, key: str, *, is_repeat: bool) -> Performed:
        """Carry the output that was announced as `key`, and return how far it got.

        Args:
            action: what the strategy asked for.
            key: the output's, as announced.
            is_repeat: whether a node that died may have begun with it.

        Raises:
            LeaseLost, VersionConflict: another node has the episode.
            Contended: the output is fought over without end.
            Unavailable: the log is away.
        """
        carried = await self.carrier.courier.carry(key, action.intent, retells=is_repeat)
        await self.tell(carried.news)
        outcome = carried.outcome
        result = OutputResult(
            output_key=key,
            status=carried.status,
            error_class=outcome.error_class if outcome else "",
        )
        return sent(action, result)

    async def cancel(self, episode: Episode, why: Cancel) -> Cancel:
        """Cancel what its steps have proposed and is not settled; return how the episode ends.

        Raises:
            Contended, Unavailable: do it again.
        """
        if not episode.outputs_left:
            return replace(why, outputs=episode.outputs_settled)
        canceled = await self.carrier.cancel(episode.outputs_left, why, retells=self.retells())
        await self.tell(canceled.news)
        return replace(why, outputs=(*episode.outputs_settled, *canceled.outputs))
