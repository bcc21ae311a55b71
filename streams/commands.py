"""What a node may be asked to do. A command is a message, not a fact: it may be refused."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Start(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="start@1"
):
    """Begin an episode that has been opened."""

    actor_id: str
    episode_id: str
    admitted: bool = False
    """Whether its turn has come, where episodes of the actor take turns. Only who gives turns says
    so: any other start is a wish for a place."""


class Recover(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
    tag="recover@1",
):
    """Go on with an episode whose node is gone."""

    actor_id: str
    episode_id: str
    reason: str
    """`lapsed`, `handover` or `swept`."""


class Cancel(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
    tag="cancel@1",
):
    """End an episode that is not wanted any more, whether or not a node has begun it."""

    actor_id: str
    episode_id: str
    by: str
    """Who wants that, for people."""
    reason: str = ""
    """Why, for people."""


Command: TypeAlias = Start | Recover | Cancel
