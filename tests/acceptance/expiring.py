"""An app that nodes of these tests run: what it hears of, it finds, for as long as it is told."""

from __future__ import annotations

import msgspec

from vigil import (
    Action,
    Actor,
    App,
    Context,
    ConvergeResult,
    EpisodeView,
    Strategy,
    Trigger,
    converge,
    event,
    raise_finding,
)


class Said(msgspec.Struct):
    """What an event says."""

    key: str
    ttl_s: float


class Find(Strategy[Said]):
    """Finds what it is told, for as long as it is told."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> Said:
        """Take both from the event."""
        return Said(str(trigger.payload["key"]), float(trigger.payload["ttl_s"]))

    def next_step(self, state: Said, ctx: Context) -> Action:
        """Converge."""
        return converge()

    def converge(self, state: Said, ctx: Context) -> ConvergeResult:
        """Raise the finding."""
        return ConvergeResult(findings=[raise_finding(state.key, class_="seen", ttl_s=state.ttl_s)])


finder = Actor("finder", max_concurrent_episodes=64)
finder.expect("seen", Find, on=event("thing.seen"), subject_key="key")

app = App(actors=[finder])
