"""Apps whose actors wait for events that never come."""

from __future__ import annotations

from typing import Final

from bench.app import ConvergeOnly
from vigil import Actor, App, Budget, event

TEN: Final = 10


def _actor(number: int) -> Actor:
    actor = Actor(f"idle_{number}", max_concurrent_episodes=256)
    actor.expect("rest", ConvergeOnly, on=event(f"bench.never.{number}"), budget=Budget())
    return actor


one = App(actors=[_actor(1)])
ten = App(actors=[_actor(number) for number in range(TEN)])
