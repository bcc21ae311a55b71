"""Takes one output to its adapter: take a place → write the attempt down → call → write what came.

Whatever is called was written down before; so a crash in the middle is seen by the next who carries
the output, and the attempt is made again, with the same idempotency key.

Who is frozen between the two and awakes when another has taken over may still call the adapter once
more than is known: receivers that must hear nothing twice honour the idempotency key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from engine.delivering import Later
from engine.output import Output
from engine.route import NO_ADAPTER, missing
from engine.runtime.attempting import make_attempt
from engine.runtime.crew import Crew
from engine.runtime.outlets import Outlet
from engine.runtime.parcel import Parcel
from engine.runtime.throttle import PLACE_S
from streams.events import OutputAttempted, OutputFailed, OutputPostponed, OutputProposed


@dataclass(frozen=True)
class Deliverer:
    """Makes the attempts of one episode, on one node."""

    crew: Crew
    check_claim: Callable[[], None]
    """Raises `LeaseLost` once the claim cannot be trusted any more."""

    async def propose(
        self, parcel: Parcel, outlet: Outlet | None, proposed: OutputProposed
    ) -> Later | None:
        """Put an output down, with the first attempt if that can be made at once.

        Returns:
            When the next attempt is due; None: ask what is to be done about the output now.

        Raises:
            Overtaken: others have added to the output; nothing was done.
            LeaseLost, VersionConflict: another node may have the episode, or has.
            Unavailable: the log is away.
        """
        may_go = proposed.approval is None and self.crew.may_go_on.is_given
        if outlet is None or not may_go or not outlet.throttle.try_enter(parcel.key):
            await parcel.write(proposed)
            return None
        return await self._deliver(parcel, outlet, proposed)

    async def attempt(self, parcel: Parcel, outlet: Outlet | None) -> Later | None:
        """Make an attempt with an output that was put down.

        Args:
            parcel: the output's.
            outlet: its adapter; None: there is none here, and it fails.

        Returns:
            When the next attempt is due; None: ask what is to be done about the output now.

        Raises:
            Overtaken, LeaseLost, VersionConflict, Unavailable: as `propose`.
        """
        if outlet is None:
            await parcel.write(_no_adapter(parcel.output))
            return None
        runs, throttle = self.crew.may_go_on, outlet.throttle
        # Who has just come must not overtake all those who were sent away before.
        is_soon = bool(parcel.since) or throttle.is_open_to_new(within_s=PLACE_S)
        has_place = (
            runs.is_given
            and is_soon
            and await throttle.enter(parcel.key, within_s=PLACE_S, unless=runs.withdrawn)
        )
        if has_place:
            return await self._deliver(parcel, outlet)
        pause_s = throttle.send_away_s(parcel.key) if runs.is_given else 0.0
        return Later(self.crew.clock.now() + timedelta(seconds=pause_s))

    async def _deliver(
        self, parcel: Parcel, outlet: Outlet, *first: OutputProposed
    ) -> Later | None:
        """Make an attempt, in a place that was taken for it; put down `first` with it."""
        try:
            number = 1 if first else parcel.output.attempts + 1
            await parcel.write(*first, OutputAttempted(attempt=number, node=self.crew.node))
            # No version can take a call back: a node that was frozen must not make it now.
            self.check_claim()
            came = await make_attempt(
                outlet, parcel.output, clock=self.crew.clock, stack=self.crew.ports.stack.name
            )
        finally:
            outlet.throttle.leave()
        # A conflict here is another owner's doing: this node has lost the episode.
        await parcel.append(came)
        return Later(came.retry_at) if isinstance(came, OutputPostponed) else None


def _no_adapter(output: Output) -> OutputFailed:
    assert output.proposed is not None, "what is attempted was proposed"
    detail = missing(output.proposed.adapter)
    return OutputFailed(attempt=output.attempts, error_class=NO_ADAPTER, error_detail=detail)
