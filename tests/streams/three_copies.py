"""Streams that seem to have three copies, with a leader that was just started again."""

from __future__ import annotations

from msgspec import structs

from streams.model.losses import StreamState


class OfThree:
    """The leader of the journal has yet to repeat its newest message, while it `is_behind`."""

    def __init__(self, states) -> None:
        self._states, self.is_behind = states, True

    def __getattr__(self, name):
        return getattr(self._states, name)

    async def of(self, part: str) -> StreamState:
        state = structs.replace(await self._states.of(part), copies=3)
        if part == "journal" and self.is_behind:
            return structs.replace(state, last_seq=state.last_seq - 1)
        return state
