"""What user code may ask about findings while an episode runs.

It is there where the outside may be read: in `init`, `converge`, tools, synthesizers, enrichments,
as `episode.findings` or `ctx.findings`. `next_step` and `handle_result` are called again after a
crash and must decide the same then, so in `next_step` it refuses.
"""

from __future__ import annotations

from typing import Final, NoReturn, Protocol

from engine.durations import Duration
from streams.findings import Finding


class Findings(Protocol):
    """The findings of a stack, each by its key, as the journal has them now."""

    async def get(self, key: str) -> Finding | None:
        """Return the latest raise of a finding, active or not; None if there has never been one.

        A dry run that keeps its findings gets the one that is kept under this key, if there is one.

        Raises:
            BadName: no finding can have this key.
            UnreadableEvent: a newer version of the engine has written it.
            Unavailable: the log is away.
        """

    async def recent(self, key: str, within: Duration) -> Finding | None:
        """Return the finding if it was raised, changed or ended no longer ago; else None.

        Args:
            key: the finding's.
            within: seconds, a text such as `15m`, or a timedelta; up to ten years.

        Raises:
            ValueError: `within` is no duration.
            BadName, UnreadableEvent, Unavailable: as for `get`.
        """


class _OutOfReach:
    """The findings where user code must not ask for them."""

    def get(self, key: str) -> NoReturn:
        """Refuse."""
        raise RuntimeError(f"finding {key!r}: {WHERE}")

    def recent(self, key: str, within: Duration) -> NoReturn:
        """Refuse."""
        raise RuntimeError(f"finding {key!r} within {within}: {WHERE}")


WHERE: Final = "findings can be read in init, converge, tools, synthesizers and enrichments only"

OUT_OF_REACH: Final[Findings] = _OutOfReach()
"""What whoever must not read findings is given."""
