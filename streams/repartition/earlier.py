"""The layout of stacks that earlier versions made: without streams of the state. Pure."""

from __future__ import annotations

from streams.layout import Stream
from streams.subjects import Stack


class EarlierStack(Stack, frozen=True):
    """A stack whose journal has all aggregates.

    The subjects of aggregates are the same as in a stack with a state.
    """

    def partitions_of(self, stream: Stream) -> range:
        """See `Layout.partitions_of`."""
        return range(0) if stream is Stream.STATE else super().partitions_of(stream)

    def stream_subjects(self, stream: Stream, partition: int = 0) -> list[str]:
        """See `Layout.stream_subjects`."""
        of_state = self.with_state().stream_subjects(Stream.STATE, partition)
        subjects = super().stream_subjects(stream, partition)
        return sorted([*subjects, *of_state]) if stream is Stream.JOURNAL else subjects

    def with_state(self) -> Stack:
        """Return the stack as it is once its state has streams."""
        return Stack(self.name, self.partitions)
