"""Evaluates what wakes one actor: which episodes each cause opens, with every reason counted.

It applies `engine.triggers.rules`, and reads and changes the state that they depend on.

A commit that a node has sent may reach the journal after the node is gone. If its cause was
redelivered and refused meanwhile, nothing would bring a node back to that episode, so it is checked
again once no such commit can be on its way. A cooldown is a key that the server removes in time; it
names its episode, so that the same cause passes again after a crash, and only one of two
simultaneous events creates it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from engine import telemetry
from engine.app import dedupe
from engine.app.actor import Expectation
from engine.app.triggers import tick_key, trigger_of
from engine.app.workflow_plan import START_EXPECTATION, Starter
from engine.dead_letters.write import rejected
from engine.episodes import open as opening
from engine.episodes.breakers.store import Breakers
from engine.episodes.events import OVERFLOW
from engine.episodes.overlap.hold import OVERLAP, SubjectHeld, in_words, is_asked_for
from engine.episodes.overlap.store import Holds
from engine.errors import EpisodeFailed
from engine.findings.expire import DueFinding, FindingExpiry
from engine.runtime.context import ActorContext
from engine.triggers import rules
from engine.triggers.debounce_store import DebounceStore
from engine.triggers.refusals import DUPLICATE, RefusalNotes
from engine.triggers.rules import (
    Debounced,
    Fire,
    Gated,
    LookUp,
    Opening,
    Part,
    Refuse,
    RefusedAgain,
    Ruling,
    Ticked,
    TriggerState,
    id_of,
)
from engine.usercode.call import call, in_text
from engine.validation import NAMES_MAX, near, paths_beside
from engine.workflows.start import InstanceStart, start_of
from streams.errors import (
    RevisionConflict,
    TooLarge,
    Unavailable,
    UnreadableEvent,
    Unwritable,
)
from streams.json import ABSENT, value_at
from streams.keys import cooldown_key
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened
from streams.model.refusals import (
    WAITS,
    AgainstDebounce,
    AgainstFilter,
    AgainstHolder,
    AgainstLane,
)
from streams.model.triggers import LogStrategy, Mode, PublicEvents, ScheduleTrigger, Trigger
from streams.ports.bucket import Bucket
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import DomainEvent
from streams.ports.log import START
from streams.tracing import traceparent

ARRIVES_S_MAX: Final = 180.0
"""How long a commit may be on its way, in seconds. A node tries for a minute to have it stored
(`LinkSettings.patience_s`), and what it leaves to its kernel when it ends may be sent for 102 s
more: Linux repeats it 8 times, first after 0.2 s, then after twice as long each time."""


TRIES_MAX: Final = 16
"""Most evaluations of one cause while the stored state keeps changing."""

MISTAKES: Final[Mapping[str, str]] = {
    "filter_key_missing": "event lacks a key that the filter needs; it does not fire",
    "filter_type": "event has a value that the filter cannot compare; it does not fire",
}
"""Reasons of refusals that may be a mistake, and what is logged the first time."""

LACKED: Final[Mapping[str, str]] = {
    "subject_key": "event lacks the key of subject_key; its episode has no subject",
    "concurrency_key": "event lacks the key of concurrency_key; no limit counts its episode",
}
"""Options that name a key of the payload, and what is logged if the first event lacks it: that may
be a mistake."""

DEDUPE_FAILED: Final = "dedupe_failed"
"""Reason of a dead letter, counted as a ruling, too: a user's dedupe function gave no key."""

log = structlog.get_logger("vigil.triggers")


@dataclass(frozen=True, kw_only=True)
class CooldownSnapshot:
    """A trigger state, and the revision of the breaker in it."""

    trigger_state: TriggerState
    breaker_revision: int


class Cooldown(msgspec.Struct, frozen=True):
    """The cooldown of a subject, as its key has it."""

    episode_id: str
    """The episode that began it; empty: there is no cooldown."""
    until: datetime | None = None
    """When it ends, by the clock of the node that began it; None: that is not noted."""


NO_COOLDOWN: Final = Cooldown("")


def cooldown_in(value: bytes | None) -> Cooldown:
    """Return the cooldown in the value of its key."""
    episode_id, _, until = (value or b"").decode(errors="replace").partition(" ")
    try:
        return Cooldown(episode_id, datetime.fromisoformat(until) if until else None)
    except ValueError:
        return Cooldown(episode_id)


def encoded_cooldown(episode_id: str, until: datetime) -> bytes:
    """Return the value of the key of a cooldown."""
    return f"{episode_id} {until.isoformat()}".encode()


@dataclass(frozen=True)
class Cooldowns:
    """Reads and changes the cooldowns and breakers of one actor, on one node."""

    context: ActorContext
    breakers: Breakers

    async def read(
        self,
        expectation: Expectation,
        opened: Opening,
        *,
        is_calm: bool = False,
        is_superseded: bool = False,
        coalesced: int = 0,
    ) -> CooldownSnapshot:
        """Return the state for what would open `opened`."""
        seen = await self.breakers.read(expectation)
        cooled = await self._cooled(expectation, opened)
        trigger_state = TriggerState(
            episode_id=id_of(opened),
            now=self.context.clock.now(),
            cooled_by=cooled.episode_id,
            cooled_until=cooled.until,
            breaker=seen.state,
            is_calm=is_calm,
            is_superseded=is_superseded,
            coalesced=coalesced,
        )
        return CooldownSnapshot(trigger_state=trigger_state, breaker_revision=seen.revision)

    async def probe(self, expectation: Expectation, fire: Fire, snapshot: CooldownSnapshot) -> bool:
        """Store the breaker's state of `fire`; False if it has changed since it was read."""
        if fire.breaker is None:
            return True
        revision = snapshot.breaker_revision
        return await self.breakers.keep(expectation, fire.breaker, after=revision)

    async def cool(
        self, expectation: Expectation, opened: Opening, snapshot: CooldownSnapshot
    ) -> bool:
        """Begin the cooldown of what fires; False if another cause began it since it was read."""
        if not expectation.cooldown_s or snapshot.trigger_state.cooled_by:
            return True
        try:
            await self._cool(expectation, opened, after=0)  # guard: one-cooldown-per-moment
        except RevisionConflict:
            return (await self._cooled(expectation, opened)).episode_id == id_of(opened)
        return True

    async def cool_anew(self, expectation: Expectation, opened: Opening) -> None:
        """Begin the cooldown, whatever began it before: a person fired."""
        if expectation.cooldown_s:  # guard: manual-fire-cools-anew
            await self._cool(expectation, opened, after=None)

    async def take_back(self, expectation: Expectation, opened: EpisodeOpened) -> None:
        """Undo the cooldown and the probe of `opened`: there is no room for it."""
        if expectation.cooldown_s:
            await self._end_cooldown(expectation, opened)
        canceled = EpisodeFinished(status=EndStatus.CANCELED)
        await self.breakers.record_end(opened, canceled, seq=START)

    async def _end_cooldown(self, expectation: Expectation, opened: Opening) -> None:
        key = self._key(expectation, opened)
        entry = await self._gates.get(key)
        # guard: cooldown-ended-by-owner
        if entry is None or cooldown_in(entry.value).episode_id != id_of(opened):
            return
        try:
            await self._gates.delete(key, after=entry.revision)
        except RevisionConflict:
            return  # It has lapsed, or what a person fired has begun it anew.

    async def _cooled(self, expectation: Expectation, opened: Opening) -> Cooldown:
        if not expectation.cooldown_s:
            return NO_COOLDOWN
        entry = await self._gates.get(self._key(expectation, opened))
        return NO_COOLDOWN if entry is None else cooldown_in(entry.value)

    async def _cool(self, expectation: Expectation, opened: Opening, *, after: int | None) -> None:
        until = self.context.clock.now() + timedelta(seconds=expectation.cooldown_s)
        await self._gates.put(
            self._key(expectation, opened),
            encoded_cooldown(id_of(opened), until),
            after=after,
            ttl_s=expectation.cooldown_s,
        )

    def _key(self, expectation: Expectation, opened: Opening) -> str:
        return cooldown_key(self.context.actor.id, expectation.name, opened.trigger.entity_id)

    @property
    def _gates(self) -> Bucket:
        return self.context.ports.gates


@dataclass(frozen=True)
class OpeningBuilder:
    """What the causes of one actor, or of a workflow's starter, open on one node."""

    context: ActorContext

    async def of(self, expectation: Expectation, trigger: Trigger, dedupe_key: str) -> Opening:
        """Return what `trigger` opens for `expectation`: an episode, or an instance."""
        actor = self.context.actor
        if isinstance(actor, Starter):
            stack = self.context.ports.stack.name
            cooldown_s = _cooldown_of(expectation, trigger)
            return start_of(actor.workflow, trigger, dedupe_key, stack=stack, cooldown_s=cooldown_s)
        return await self.opened(expectation, trigger, dedupe_key)

    async def opened(
        self, expectation: Expectation, trigger: Trigger, dedupe_key: str
    ) -> EpisodeOpened:
        """Return the opening of the episode that `trigger` has for `expectation`."""
        opened = self._declared(expectation, trigger, dedupe_key)
        # `with_budget` asks it, too; but most episodes then enter no other file for it.
        if expectation.adaptive_budget is None:
            return opened
        return await opening.with_budget(self.context.ports.gates, opened)

    def _declared(
        self, expectation: Expectation, trigger: Trigger, dedupe_key: str
    ) -> EpisodeOpened:
        context, cooldown_s = self.context, _cooldown_of(expectation, trigger)
        episode_id = dedupe.episode_id(
            stack=context.ports.stack.name,
            actor=context.actor.id,
            expectation=expectation.name,
            dedupe_key=dedupe_key,
        )
        within_s = expectation.start_within_s
        return EpisodeOpened(
            episode_id=episode_id,
            actor_id=context.actor.id,
            expectation_id=expectation.name,
            trigger=trigger,
            dedupe_key=dedupe_key,
            budget=expectation.budget,
            spec_rev=context.actor.spec_rev,
            revision=context.actor.revision,
            subject_kind=expectation.subject_key,
            priority=expectation.priority,
            opened_by=context.node,
            log_strategy=LogStrategy(expectation.log_strategy),
            # guard: episode-publishes-events
            public_events=PublicEvents(context.actor.public_events),
            service_level=expectation.service_level,  # guard: level-kept-from-opening
            adaptive_budget=expectation.adaptive_budget,
            holds_subject=expectation.overlap != "allow",
            cooldown_s=cooldown_s,
            is_request=context.permits.wakes.is_given and not context.permits.runs.is_given,
            start_by=context.clock.now() + timedelta(seconds=within_s) if within_s else None,
        )

    async def is_open(self, opened: Opening) -> bool:
        """Return whether it has been opened: then a node is called to it."""
        log, stack = self.context.ports.log, self.context.ports.stack
        is_instance = isinstance(opened, InstanceStart)
        subject = (stack.workflow if is_instance else stack.episode)(id_of(opened))
        try:
            return await log.last(subject) is not None
        # guard: unreadable-episode-exists
        except UnreadableEvent:  # Of a newer version, but there.
            return True

    async def ask_later(self, opened: Opening) -> None:
        """Ask for a place in the lane once no commit can be on its way to the journal.

        Who opened the episode for a lane may be gone, and what it sent may still arrive. If nothing
        does, nothing follows; if there are no turns any more, a node is called.
        """
        if isinstance(opened, InstanceStart):  # Its call goes first, and waits for its beginning.
            return
        context = self.context
        timer = opening.place_if_there(context.actor.id, opened.episode_id)
        at = context.clock.now() + timedelta(seconds=ARRIVES_S_MAX)
        await context.ports.timers.arm(timer, at=at)


@dataclass
class TriggerEvaluator:
    """Evaluates the causes of one actor on one node."""

    context: ActorContext
    breakers: Breakers
    _warned: set[tuple[str, ...]] = field(default_factory=set)
    """What was looked at once, and warned of if it was wrong: expectation, what, and path."""
    builder: OpeningBuilder = field(init=False)
    _cooldowns: Cooldowns = field(init=False)
    _debouncer: DebounceStore = field(init=False)
    _expiry: FindingExpiry = field(init=False)
    _holds: Holds = field(init=False)
    _notes: RefusalNotes = field(init=False)

    def __post_init__(self) -> None:
        self.builder = OpeningBuilder(self.context)
        self._cooldowns, self._debouncer = (
            Cooldowns(self.context, self.breakers),
            DebounceStore(self.context),
        )
        self._expiry = FindingExpiry(self.context)
        self._holds = Holds(self.context.ports, self.context.clock)
        self._notes = RefusalNotes(self.context)

    async def rule(
        self, event: DomainEvent, *, is_repeat: bool, is_late: bool = False
    ) -> list[Part]:
        """Return the parts of `event`, one for each expectation that it may fire or have fired.

        Nothing is looked up yet: `evaluate` does that, for many at a time. With `is_late`, other
        nodes may have the event by now.
        """
        stack, actor = self.context.ports.stack.name, self.context.actor
        parts: list[Part] = []
        for expectation in actor.expectations.values():
            ruling = rules.rule(expectation, event, stack=stack, actor=actor.id)
            match ruling:
                case Fire(trigger=fired):
                    self._look_for_keys(expectation, event)
                    parts.append(await self._keyed(expectation, event, fired))
                case Refuse():
                    self._refused(ruling, expectation, event)
                    if is_repeat or is_late:  # guard: unfit-first-not-looked-for
                        is_watched = ruling.reason != "not_watched"
                        parts.append(
                            RefusedAgain(
                                expectation=expectation, event=event, is_watched=is_watched
                            )
                        )
                case _:
                    self._look_for_keys(expectation, event)
                    parts.append(Gated(expectation=expectation, event=event, is_repeat=is_repeat))
        return parts

    async def evaluate(
        self, part: Part, *, is_late: Callable[[], bool] = lambda: False
    ) -> Opening | Unreadable | None:
        """Return what `part` opens, or a message for a dead letter; None: neither."""
        # With `is_late`, other nodes may have it by now, and it begins no cooldown.
        match part:
            case Gated() | Ticked():
                return await self._settle(part, is_late)
            case EpisodeOpened() | InstanceStart() | Unreadable():
                return part
            case DueFinding():
                await self._expiry.apply(part)
                return None
            case RefusedAgain():
                return await self._complete(part)

    def note_fire(self, opened: Opening) -> None:
        """Count an episode or instance that was opened."""
        self._count("fire", self._expectation_of(opened))

    def note_duplicate(self, opened: Opening) -> None:
        """Count an episode or instance that was not opened because it had been."""
        self._count(DUPLICATE, self._expectation_of(opened))
        self._notes.note_duplicate(opened)

    def note_overflow(self, opened: EpisodeOpened, against: AgainstLane) -> None:
        """Note an episode that there is no room for in the lane."""
        self._notes.note(opened, OVERFLOW, against)

    def note_overlap(self, opened: Opening) -> None:
        """Count an episode or instance that was not opened because of another one."""
        self._count(OVERLAP, self._expectation_of(opened))

    async def fire(self, opened: EpisodeOpened) -> Opening | None:
        """Return the episode that a person fires, and begin its cooldown; None: nothing is to do.

        No gate refuses it, but an episode that it may not overlap. A dry run begins no cooldown and
        overlaps any, nor does a repeated request begin one.
        """
        expectation = self.context.actor.expectations[opened.expectation_id]
        holds = opened.holds_subject
        cools = expectation.cooldown_s and opened.mode is Mode.LIVE  # guard: dry-run-no-cooldown
        # guard: repeated-fire-no-cooldown
        if (cools or holds) and await self.builder.is_open(opened):
            return await self._unless_held(opened)
        if cools:
            await self._cooldowns.cool_anew(expectation, opened)
        return await self._held(opened) if holds else opened

    async def take_back(self, opened: EpisodeOpened) -> None:
        """Undo what the evaluation of `opened` has changed: there is no room for it."""
        await self._cooldowns.take_back(
            self.context.actor.expectations[opened.expectation_id], opened
        )
        if opened.holds_subject:
            await self._holds.give_back(opened)

    def _expectation_of(self, opened: Opening) -> Expectation:
        expectations = self.context.actor.expectations
        if isinstance(opened, InstanceStart):
            return expectations[START_EXPECTATION]
        return expectations[opened.expectation_id]

    async def _settle(
        self, part: Gated | Ticked, is_late: Callable[[], bool]
    ) -> Opening | Unreadable | None:
        opened = await self._wanted(part)
        if isinstance(opened, Unreadable):
            return opened
        # guard: opened-before-shut-completed
        if part.is_repeat and await self.builder.is_open(opened):
            # What it passed then may be shut by now, but what was begun is to be completed.
            return await self._unless_held(opened)
        if isinstance(part, Ticked) and part.is_missed:
            await self._let_go(part, opened, is_late)
            return None
        for _ in range(TRIES_MAX):
            snapshot = await self._look(opened, part)
            ruling = self._ruling(part, snapshot.trigger_state)
            match ruling:
                case Refuse():
                    self._count(ruling.reason, part.expectation)
                    self._notes.note(opened, ruling.reason, ruling.against)
                    await self._let_go(part, opened, is_late)
                    return None
                case Debounced() if isinstance(part, Gated):
                    return await self._hold(part)
                case Fire():
                    _check_late(opened, is_late=is_late())  # guard: late-begins-no-cooldown
                    if await self._is_open_before(part.expectation, opened):
                        self.note_duplicate(opened)
                        return None
                    if await self._passes(part, opened, ruling, snapshot):
                        return await self._within_overlap(opened, part, is_late)
                case LookUp() | Debounced():
                    raise AssertionError("all is looked up, and a tick waits for nothing")
        raise Unavailable(
            id_of(opened),
            detail=f"the state of its gate has changed {TRIES_MAX} times meanwhile",
        )

    async def _let_go(
        self, part: Gated | Ticked, opened: Opening, is_late: Callable[[], bool]
    ) -> None:
        """Refuse `part`; if another node may have opened its episode, see that it has a place."""
        if part.is_repeat or is_late():  # guard: lane-repeat-refused-asks-place
            await self.builder.ask_later(opened)

    async def _complete(self, part: RefusedAgain) -> Opening | None:
        """Return the episode of an event that is refused now, if another version opened it."""
        expectation, event = part.expectation, part.event
        fired = trigger_of(event, subject_key=expectation.subject_key)
        try:
            key = await call(dedupe.key_of, expectation.dedupe, event)
        except EpisodeFailed:  # guard: dedupe-not-asked-about-unfit
            return None  # It is not meant for such an event.
        opened = await self.builder.of(expectation, fired, key)
        if await self.builder.is_open(opened):  # guard: other-filters-episode-completed
            return opened
        # guard: other-filters-episode-looked-for
        if part.is_watched:  # Else there would be a timer for nearly every expectation.
            await self.builder.ask_later(opened)
        return None

    async def _is_open_before(self, expectation: Expectation, opened: Opening) -> bool:
        """Return whether another cause has opened the episode; False if no gate remembers it."""
        # An open episode begins no cooldown and is no probe: its time was when it was opened. Any
        # cause may come to it, also an event whose id was used long ago.
        # guard: duplicate-changes-nothing
        if not expectation.cooldown_s and expectation.breaker is None:
            return False
        return await self.builder.is_open(opened)

    async def _within_overlap(
        self, opened: Opening, part: Gated | Ticked, is_late: Callable[[], bool]
    ) -> Opening | Unreadable | None:
        """Return what is left to open once the subject is held; None: nothing."""
        # An instance takes its subject when it begins.
        if isinstance(opened, InstanceStart) or not opened.holds_subject:
            return opened
        try:
            return await self._held(opened, is_late)
        except (TooLarge, Unwritable) as error:
            if isinstance(part, Ticked):
                raise
            stack = self.context.ports.stack
            return rejected(part.event, stack, reason="too_large", detail=str(error))

    async def _held(
        self, opened: EpisodeOpened, is_late: Callable[[], bool] = lambda: False
    ) -> EpisodeOpened | None:
        expectation = self.context.actor.expectations[opened.expectation_id]
        found = await self._holds.take(opened, expectation.overlap)
        if isinstance(found, SubjectHeld):
            await self._cooldowns.take_back(expectation, opened)
            await self._refuse_overlap(opened, found, expectation)
            return None
        if not found.held_by:
            return found
        _check_late(opened, is_late=is_late())  # guard: overlap-stalled-opens-nothing
        context = self.context
        found = replace(found, in_lane=context.is_laned)
        now, trace = context.clock.now(), traceparent()
        is_new = await opening.open_episode(context.ports, found, at=now, trace=trace)
        (self.note_fire if is_new else self.note_duplicate)(found)
        return None

    async def _unless_held(self, opened: Opening) -> Opening | None:
        """Return what is open, to be started; None: it waits for the end of another episode."""
        if isinstance(opened, InstanceStart) or not opened.holds_subject:
            return opened
        return opened if await self._holds.may_start(opened) else None

    async def _refuse_overlap(
        self, opened: EpisodeOpened, held: SubjectHeld, expectation: Expectation
    ) -> None:
        self._count(OVERLAP, expectation)
        self._notes.note(opened, OVERLAP, AgainstHolder(episode_id=held.episode_id))
        why = in_words(opened, held)
        log.info("refused: overlap", actor=opened.actor_id, expectation=expectation.name, why=why)
        if is_asked_for(opened):  # guard: overlap-asker-sees-holder
            await self._holds.record_refusal(opened, held)

    async def _wanted(self, part: Gated | Ticked) -> Opening | Unreadable:
        expectation = part.expectation
        if isinstance(part, Ticked):
            key = tick_key(part.schedule, part.trigger.scheduled_at)
            return await self.builder.of(expectation, part.trigger, key)
        subject_key, coalesced = expectation.subject_key, part.coalesced
        fired = trigger_of(part.event, subject_key=subject_key, coalesced=coalesced)
        return await self._keyed(expectation, part.event, fired)

    def _ruling(self, part: Gated | Ticked, trigger_state: TriggerState) -> Ruling:
        stack, actor = self.context.ports.stack.name, self.context.actor.id
        if isinstance(part, Ticked):
            return rules.rule_tick(
                part.expectation,
                part.trigger,
                stack=stack,
                actor=actor,
                trigger_state=trigger_state,
            )
        return rules.rule(
            part.expectation, part.event, stack=stack, actor=actor, trigger_state=trigger_state
        )

    async def _passes(
        self, part: Gated | Ticked, opened: Opening, fire: Fire, snapshot: CooldownSnapshot
    ) -> bool:
        """Store what passing changes; return False if it has been changed meanwhile."""
        if not await self._cooldowns.probe(part.expectation, fire, snapshot):
            return False
        if isinstance(part, Ticked):
            return True
        if not await self._cooldowns.cool(part.expectation, opened, snapshot):
            return False
        if part.is_calm:
            await self._debouncer.note_fired(part)
        return True

    async def _look(self, opened: Opening, part: Gated | Ticked) -> CooldownSnapshot:
        if isinstance(part, Ticked) or not part.is_calm:
            return await self._cooldowns.read(part.expectation, opened)
        return await self._cooldowns.read(
            part.expectation,
            opened,
            is_calm=True,
            is_superseded=await self._debouncer.is_superseded(part),
            coalesced=part.coalesced,
        )

    async def _hold(self, part: Gated) -> Unreadable | None:
        """Arm the debounce of an event; return it for a dead letter if it is too large."""
        try:
            is_held = await self._debouncer.hold(part)
        except TooLarge as error:
            stack = self.context.ports.stack
            return rejected(part.event, stack, reason="too_large", detail=str(error))
        reason = WAITS if is_held else "superseded"
        self._count(reason, part.expectation)
        rules_of, event = part.expectation, part.event
        against = AgainstDebounce(debounce_s=rules_of.debounce_s, max_wait_s=rules_of.max_wait_s)
        self._notes.note_event(event, rules_of, reason, against)
        return None

    async def _keyed(
        self, expectation: Expectation, event: DomainEvent, fired: Trigger
    ) -> Opening | Unreadable:
        try:
            key = await call(dedupe.key_of, expectation.dedupe, event)  # guard: dedupe-key-of-event
        except EpisodeFailed as failed:
            self._count(DEDUPE_FAILED, expectation)
            detail = f"expectation {expectation.name!r}: {in_text(failed.detail)}"
            # guard: no-dedupe-key-dead-letter
            return rejected(event, self.context.ports.stack, reason=DEDUPE_FAILED, detail=detail)
        return await self.builder.of(expectation, fired, key)

    def _refused(self, refusal: Refuse, expectation: Expectation, event: DomainEvent) -> None:
        self._count(refusal.reason, expectation)
        self._notes.note_event(event, expectation, refusal.reason, refusal.against)
        if refusal.reason not in MISTAKES or not isinstance(refusal.against, AgainstFilter):
            return
        place = (expectation.name, refusal.reason, refusal.against.path)
        if place not in self._warned:
            self._warned.add(place)
            log.warning(
                MISTAKES[refusal.reason],
                actor=self.context.actor.id,
                expectation=expectation.name,
                key=refusal.against.path,
                event_id=event.id,
                further="counted, not logged",
            )

    def _look_for_keys(self, expectation: Expectation, event: DomainEvent) -> None:
        """Warn if the first event that fits an expectation lacks a key that an option names."""
        for option, message in LACKED.items():
            path = getattr(expectation, option)
            place = (expectation.name, option, path)
            if not path or place in self._warned:  # guard: lacked-key-told-once
                continue
            self._warned.add(place)
            if value_at(event.payload, path) is ABSENT:
                log.warning(
                    message,
                    actor=self.context.actor.id,
                    expectation=expectation.name,
                    key=path,
                    hint=_hint(event, path),
                    event_id=event.id,
                    further="not logged",
                )

    def _count(self, reason: str, expectation: Expectation) -> None:
        telemetry.gate_rulings.add(
            1, {"actor": self.context.actor.id, "expectation": expectation.name, "reason": reason}
        )


def _cooldown_of(expectation: Expectation, trigger: Trigger) -> int:
    """Return the cooldown that a cause begins, in seconds; 0: none."""
    # guard: tick-cools-nothing
    return 0 if isinstance(trigger, ScheduleTrigger) else expectation.cooldown_s


def _check_late(opened: Opening, *, is_late: bool) -> None:
    """Leave a late cause to other nodes, before anything is changed for it."""
    if is_late:
        raise Unavailable(id_of(opened), detail="it came so late that others may have it")


def _hint(event: DomainEvent, path: str) -> str:
    """Return which key of the payload is meant with `path`, or which there are."""
    there = paths_beside(event.payload, path)
    some = f"known: {', '.join(there[:NAMES_MAX])}, …" if there else "the payload has none there"
    return near(path, there) or some
