"""An app that nodes of these tests run: actors that wait, rest and tick, and do nothing else."""

from __future__ import annotations

from typing import Final

from engine.actions import Action, converge
from engine.schedule import cron, every
from engine.trigger import event
from vigil import Actor, App, Context, ConvergeResult, EpisodeView, JsonObject, Strategy, Trigger

CALM_S: Final = 6
REST_S: Final = 12
SHORT_S: Final = 3
ORDERS: Final = "ORDERS"


class Note(Strategy[JsonObject]):
    """Ends at once: what opened it is all that matters."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> JsonObject:
        """Keep nothing."""
        return {}

    def next_step(self, state: JsonObject, ctx: Context) -> Action:
        """Converge."""
        return converge()

    def converge(self, state: JsonObject, ctx: Context) -> ConvergeResult:
        """Find nothing."""
        return ConvergeResult()


porter = Actor("porter")
porter.expect("calm", Note, on=event("door.opened"), subject_key="door", debounce_s=CALM_S)
porter.expect("soon", Note, on=event("gate.opened"), debounce_s=SHORT_S)
porter.expect("rested", Note, on=event("bell.rung"), subject_key="door", cooldown_s=REST_S)
porter.expect("briefly", Note, on=event("horn.blown"), cooldown_s=SHORT_S)

warden = Actor("warden", max_concurrent_episodes=64)
warden.expect("every_tick", Note, on=every("2s", catch_up="all"))
warden.expect("newest_tick", Note, on=every("2s", catch_up="one"))
warden.expect("minutes", Note, on=cron("* * * * *", tz="Europe/Berlin", catch_up="all"))

auditor = Actor("auditor", max_concurrent_episodes=64)
auditor.expect("order", Note, on=event(stream=ORDERS, subject="orders.>", start="all"))

app = App(actors=[porter, warden])
audit = App(actors=[auditor])
