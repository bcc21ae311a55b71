"""What the next owner does about an episode: its policy, which users may have a say in."""

from __future__ import annotations

from engine import recovery
from engine.actor import Actor
from engine.app import App, Orphan
from engine.episode import Episode
from engine.errors import EpisodeFailed
from engine.expectation import Expectation
from engine.recovery import Policy, Takeover
from engine.runtime.crew import Crew
from engine.runtime.usercode import call
from streams.events import EpisodeOpened


async def decide_takeover(crew: Crew, opened: EpisodeOpened, episode: Episode) -> Takeover:
    """Return what becomes of `episode`, whose node crashed running it, now that we have it."""
    expectation = crew.actor.expectations[opened.expectation_id]
    try:
        policy = await call(_policy, crew.app, expectation, opened, episode)
    except EpisodeFailed as failed:
        return Takeover(error_class=failed.error_class, detail=failed.detail)

    def repeatable(tool_name: str) -> bool:
        return _is_repeatable(crew.app, crew.actor, tool_name)

    return recovery.take_over(
        episode, policy, attempts_max=expectation.attempts_max, repeatable=repeatable
    )


def _is_repeatable(app: App, actor: Actor, tool_name: str) -> bool:
    tool = app.tool(actor, tool_name.partition(".")[0])
    return tool is not None and tool.idempotent


async def _policy(
    app: App, expectation: Expectation, opened: EpisodeOpened, episode: Episode
) -> Policy:
    """Return what is to become of the episode if its node crashed."""
    resolve, policy = app.resolve_policy, expectation.recovery
    if resolve is None:
        return policy
    chosen = resolve(_orphan(opened, episode)) or policy
    if chosen not in recovery.POLICIES:
        known = ", ".join(recovery.POLICIES)
        raise EpisodeFailed("invalid_policy", f"resolve_policy gave {chosen!r}, not {known}")
    return chosen


def _orphan(opened: EpisodeOpened, episode: Episode) -> Orphan:
    return Orphan(
        episode_id=opened.episode_id,
        actor_id=opened.actor_id,
        expectation_id=opened.expectation_id,
        node=episode.node,
        crashes=episode.crashes + 1,
        steps_recorded=episode.steps_recorded,
    )
