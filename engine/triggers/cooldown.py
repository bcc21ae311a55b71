"""What the cluster remembers for an actor's gates: looked up before a ruling, changed by passing.

A cooldown is a key that the server removes when its time is over. It names the episode that began
it, so that the same cause passes again if its node died in between. Whoever makes the key passes;
of two events at the same moment one does.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.app.actor import Expectation
from engine.episodes.breaker import CLOSED
from engine.episodes.context import EpisodeContext
from engine.triggers.rules import Fire, TriggerState
from streams.errors import RevisionConflict
from streams.keys import cooldown_key
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened
from streams.ports.bucket import Bucket
from streams.ports.log import START

NO_REVISION = 0
"""Of a breaker that nobody has told anything."""


@dataclass(frozen=True, kw_only=True)
class CooldownSnapshot:
    """A standing, and the revision of the breaker in it."""

    trigger_state: TriggerState
    breaker_revision: int


@dataclass(frozen=True)
class Cooldowns:
    """Lets the causes of one actor's episodes through, on one node."""

    context: EpisodeContext

    async def look(
        self,
        expectation: Expectation,
        opened: EpisodeOpened,
        *,
        is_calm: bool = False,
        is_superseded: bool = False,
        coalesced: int = 0,
    ) -> CooldownSnapshot:
        """Return how things stand for what would open `opened`.

        Raises:
            Unavailable: the gates are away.
        """
        state, revision = CLOSED, NO_REVISION
        if expectation.breaker is not None:
            seen = await self.context.breakers.look(expectation)
            state, revision = seen.state, seen.revision
        trigger_state = TriggerState(
            episode_id=opened.episode_id,
            now=self.context.clock.now(),
            cooled_by=await self._cooled_by(expectation, opened),
            breaker=state,
            is_calm=is_calm,
            is_superseded=is_superseded,
            coalesced=coalesced,
        )
        return CooldownSnapshot(trigger_state=trigger_state, breaker_revision=revision)

    async def probe(self, expectation: Expectation, fire: Fire, snapshot: CooldownSnapshot) -> bool:
        """Have the breaker let the episode through; False if it has changed since the look.

        Raises:
            Unavailable: the gates are away. The breaker may have changed: it is safe to ask again.
        """
        if fire.breaker is None:
            return True
        revision = snapshot.breaker_revision
        return await self.context.breakers.keep(expectation, fire.breaker, after=revision)

    async def cool(
        self, expectation: Expectation, opened: EpisodeOpened, snapshot: CooldownSnapshot
    ) -> bool:
        """Begin the cooldown of what fires; False if something else has begun it since the look.

        Raises:
            Unavailable: the gates are away. It may have begun: it is safe to begin it again.
        """
        if not expectation.cooldown_s or snapshot.trigger_state.cooled_by:
            return True
        try:
            await self._cool(expectation, opened, after=0)
        except RevisionConflict:
            return await self._cooled_by(expectation, opened) == opened.episode_id
        return True

    async def cool_anew(self, expectation: Expectation, opened: EpisodeOpened) -> None:
        """Begin the cooldown, whatever has begun it before: a person fired.

        Raises:
            Unavailable: the gates are away. Beginning it again is safe.
        """
        if expectation.cooldown_s:
            await self._cool(expectation, opened, after=None)

    async def take_back(self, expectation: Expectation, opened: EpisodeOpened) -> None:
        """Undo what letting `opened` through has changed: there is no room for it.

        Raises:
            Unavailable: the gates are away. Taking it back again is safe.
        """
        if expectation.cooldown_s:
            await self._end_cooldown(expectation, opened)
        canceled = EpisodeFinished(status=EndStatus.CANCELED)
        await self.context.breakers.note(opened, canceled, seq=START)

    async def _end_cooldown(self, expectation: Expectation, opened: EpisodeOpened) -> None:
        """End the cooldown that `opened` began, if it is no other one by now."""
        key = self._key(expectation, opened)
        entry = await self._gates.get(key)
        if entry is None or entry.value != opened.episode_id.encode():
            return
        try:
            await self._gates.delete(key, after=entry.revision)
        except RevisionConflict:
            return  # It has lapsed, or what a person fired has begun it anew.

    async def _cooled_by(self, expectation: Expectation, opened: EpisodeOpened) -> str:
        if not expectation.cooldown_s:
            return ""
        entry = await self._gates.get(self._key(expectation, opened))
        return "" if entry is None or entry.value is None else entry.value.decode(errors="replace")

    async def _cool(
        self, expectation: Expectation, opened: EpisodeOpened, *, after: int | None
    ) -> None:
        await self._gates.put(
            self._key(expectation, opened),
            opened.episode_id.encode(),
            after=after,
            ttl_s=expectation.cooldown_s,
        )

    def _key(self, expectation: Expectation, opened: EpisodeOpened) -> str:
        return cooldown_key(self.context.actor.id, expectation.name, opened.trigger.entity_id)

    @property
    def _gates(self) -> Bucket:
        return self.context.ports.gates
