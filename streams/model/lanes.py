"""The contents of a lane: an actor's waiting and admitted episodes. Pure."""

from __future__ import annotations

from datetime import datetime

from streams.model.struct import Struct


class Ticket(Struct, frozen=True, kw_only=True):
    """One episode's place in its actor's lane."""

    episode_id: str
    expectation_id: str
    number: int
    """In the order of the causes, from 1, with gaps. Of equal priorities the lowest goes first."""
    priority: int = 0
    """Each is worth so many numbers: see `PLACES_PER_PRIORITY` of the lane."""
    key: str = ""
    """Of those of its expectation with the same key only so many run at a time; empty: it has
    none. A long one is a hash."""
    key_limit: int = 0
    """How many; 0: any number."""
    start_by: datetime | None = None
    """Until when it is worth beginning; None: for ever."""
    resumes: bool = False
    """Whether it had a turn before, and goes on with what it has done: it is never shed."""
    answered_step: int = 0
    """The step that it waited for and goes on with, if it resumes: it has a turn for each."""
