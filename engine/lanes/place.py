"""Decides the next commit of a lane, and opens the episodes that it places before it is written.

The decision comes first, so that no episode is opened without a place; it is repeated if some of
the episodes turn out to have run already. Those whose turn it is are run first
(`single_commit.py`): only those that have not ended then are opened, and all that wait behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from msgspec.structs import replace

from engine.dead_letters.write import DeadLetterWriter, unopened
from engine.episodes.open import open_episode
from engine.lanes import lane as lane_rules
from engine.lanes.effects import LaneEffects
from engine.lanes.lane import Lane, LaneInputs, Limits, RequestedEpisode
from engine.lanes.single_commit import SingleCommitRunner
from engine.triggers.evaluate import TriggerEvaluator
from streams.errors import TooLarge, Unwritable
from streams.model.events import LaneEvent, LaneMoved


@dataclass(frozen=True, kw_only=True)
class RoundDecision:
    """The events of one commit, and what is known of the requested episodes."""

    events: Sequence[LaneEvent]
    asked: Mapping[str, RequestedEpisode]
    """Those that were not in the lane, by episode."""
    is_open: Mapping[str, bool] = field(default_factory=dict)
    """Episode → whether it is open and waits for its turn, as far as it was looked up."""

    @property
    def moves(self) -> list[LaneMoved]:
        """The moves among the events."""
        return [event for event in self.events if isinstance(event, LaneMoved)]


@dataclass(frozen=True)
class RoundPlanner:
    """Decides for one actor, on one node."""

    evaluator: TriggerEvaluator
    dead_letters: DeadLetterWriter
    effects: LaneEffects
    runner: SingleCommitRunner

    async def decide(
        self,
        lane: Lane,
        asked: Iterable[RequestedEpisode],
        limits: Limits,
        *,
        seen: LaneInputs,
    ) -> RoundDecision:
        """Return what moves in `lane`, with all episodes open that it places."""
        wanting = self._wanting(lane, asked, left=seen.left)
        # What has left its place in the same moment may have ended since it asked for another one.
        sure = (id_ for id_, each in wanting.items() if each.is_open and id_ not in seen.left)
        is_open, until_s = dict.fromkeys(sure, True), self.runner.deadline_s()
        while True:
            wanted = [each.wanted for each in wanting.values()]
            events = lane_rules.decide(lane, replace(seen, wanted=wanted), limits)
            decision = RoundDecision(events=events, asked=wanting, is_open=is_open)
            found = await self._look_into(decision, until_s=until_s)
            if not found:
                return decision
            # Each round knows more of at least one: it ends.
            is_open |= {id_: open_ for id_, open_ in found.items() if open_ is not None}
            wanting = {
                id_: each for id_, each in wanting.items() if found.get(id_, True) is not None
            }

    def _wanting(
        self, lane: Lane, asked: Iterable[RequestedEpisode], *, left: Collection[str]
    ) -> dict[str, RequestedEpisode]:
        """Return what is asked for and not in the lane, or has just left it, each episode once."""
        known = {ticket.episode_id for ticket in chain(lane.waiting, lane.admitted)}
        wanting: dict[str, RequestedEpisode] = {}
        for each in asked:
            episode_id = each.opened.episode_id
            is_back = each.wanted.resumes and episode_id in left and episode_id not in wanting
            if episode_id not in known or is_back:
                known.add(episode_id)
                wanting[episode_id] = each
            elif not each.is_open:
                self.evaluator.note_duplicate(each.opened)
        return wanting

    async def _look_into(
        self, decision: RoundDecision, *, until_s: float
    ) -> dict[str, bool | None]:
        """Return what became of the episodes that are placed or dropped, as far as is not known.

        Run what has its turn; else open what is placed, and look up what is dropped. None: it has
        begun, or cannot be opened.
        """
        asked, is_open = decision.asked, decision.is_open
        placed = [ticket.episode_id for moved in decision.moves for ticket in moved.placed]
        admitted = {episode_id for moved in decision.moves for episode_id in moved.admitted}
        turns = [each for each in placed if each in admitted]  # guard: only-turn-tried
        unknown = (asked[id_] for id_ in turns if id_ not in is_open)
        if tried := [each for each in unknown if self.runner.may_try(each)]:
            ended = await self.runner.run(tried, until_s=until_s)
            found = zip(tried, ended, strict=True)
            return {each.opened.episode_id: None if done else False for each, done in found}
        dropped = [episode_id for moved in decision.moves for episode_id in moved.dropped]
        work = {id_: self._open(asked[id_]) for id_ in placed if not is_open.get(id_)}
        # guard: drop-looked-into
        work |= {id_: self._look_up(asked[id_]) for id_ in dropped if id_ not in is_open}
        return dict(zip(work, await asyncio.gather(*work.values()), strict=True))

    async def _open(self, asked: RequestedEpisode) -> bool | None:
        opened, context = replace(asked.opened, in_lane=True), self.evaluator.context
        if asked.wanted.resumes:
            return await self._look_up(asked) or None
        now, trace = context.clock.now(), asked.trace
        try:
            if await open_episode(context.ports, opened, at=now, trace=trace):
                self.evaluator.note_fire(opened)
                return True
        # Numbers and text may need more room than they came in.
        except (TooLarge, Unwritable) as error:
            stack, actor = context.ports.stack, opened.actor_id
            letter = unopened(
                opened.trigger, asked.cause, error, stack=stack, seq=asked.seq, actor_id=actor
            )
            await self.dead_letters.write_message(letter, actor_id=actor)
            return None
        # The last scheduler may have come as far as this.
        return await self._look_up(asked) or None  # guard: begun-not-placed

    async def _look_up(self, asked: RequestedEpisode) -> bool | None:
        newest = await self.effects.newest(asked.opened.episode_id)
        if newest is None:
            return False
        if lane_rules.waits(newest):
            return True
        self.evaluator.note_duplicate(asked.opened)
        return None
