"""Signals: the results that episodes wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from engine.errors import Refused
from engine.waits import requests
from engine.waits.answer import EpisodeWait, waits_of
from engine.waits.signal import RESOLVED, signal
from engine.waits.signals import References
from streams.clock import Clock
from streams.json import JsonObject
from streams.model.events import EpisodeResolved, SignalWaited
from streams.ports.all import Ports
from streams.ports.log import Recorded
from vigil.asking.requests import CommandOutcome, CommandResult, SentCommand, watch
from vigil.client.connections import Connections
from vigil.client.episodes import EpisodeCalls
from vigil.client.events import EventCalls, PublishReceipt
from vigil.errors import Trouble, told
from vigil.settings import DECISION_S


@dataclass(frozen=True)
class SignalCalls:
    """Calls about signals: `client.signals`."""

    _connections: Connections

    async def send(
        self, ref: str, result: object = None, *, by: str | None = None, id: str | None = None
    ) -> PublishReceipt:
        """Publish the result of `ref` for all that wait for it, now or within an hour.

        Args:
            id: of the event, as for `client.publish`.

        Raises:
            Mistake: no engine would take it: `ref` has not 1 to 256 characters, or the result is no
                JSON, or over 256 KiB.
        """
        name = self._connections.who(by)
        with told():
            signal(id or "new", ref, result, name)  # guard: sent-signal-checked
        payload: JsonObject = {"ref": ref, "result": result, "by": name}
        return await EventCalls(self._connections).publish(RESOLVED, payload, id=id)

    async def resolve(
        self,
        ref: str,
        result: object = None,
        *,
        episode_id: UUID | str | None = None,
        by: str | None = None,
        wait_s: float | None = DECISION_S,
    ) -> Sequence[CommandOutcome]:
        """Give the episodes that wait for `ref` now its result; return what became of each.

        Args:
            episode_id: only this episode, by its id or so much of it that it is one; None: all.
            wait_s: how long to wait until that is on their journals, in seconds; None: not at all.

        Raises:
            Mistake: a value is impossible.
            NotFound: no episode has that id.
            Trouble: no episode waits for it.
        """
        episodes = EpisodeCalls(self._connections)
        only = None if episode_id is None else str(await episodes.find(episode_id))
        async with self._connections.log() as ports:
            waiting = await _waiting(ports, ref, only, self._connections.clock)
            try:
                id_ = await requests.resolve(
                    ports, ref, result, by=self._connections.who(by), episode_id=only
                )
            except Refused as error:
                raise Trouble(str(error), remedy=f"for a future one, publish {RESOLVED}") from error
            sent = [_sent(ports, each, id_) for each in waiting]
            return await watch(ports, sent, wait_s=wait_s)


async def _waiting(
    ports: Ports, ref: str, episode_id: str | None, clock: Clock
) -> list[SignalWaited]:
    """Return the waits for `ref` that are not over: all, or that of one episode."""
    waiting = await References(ports, clock).waiting(ref)
    return [each for each in waiting if episode_id in (None, each.episode_id)]


def _sent(ports: Ports, waiter: SignalWaited, id_: str) -> SentCommand:
    def result(records: Sequence[Recorded]) -> CommandResult | None:
        if waiter.is_ahead:
            return CommandResult("gets it when its branch has its turn", is_wanted=True)
        wait = _newest_wait(records, waiter.ref)
        if wait is None or wait.end is None:
            return None
        is_wanted = isinstance(wait.end, EpisodeResolved) and wait.end.decision_id == id_
        return CommandResult("resolved" if is_wanted else "it had ended by then", is_wanted)

    return SentCommand(
        name=waiter.episode_id,
        actor_id=waiter.actor_id,
        episode_id=waiter.episode_id,
        subject=ports.stack.episode(waiter.episode_id),
        result=result,
    )


def _newest_wait(records: Sequence[Recorded], ref: str) -> EpisodeWait | None:
    waits = [each for each in waits_of(records) if each.blocked.ref == ref]
    return waits[-1] if waits else None
