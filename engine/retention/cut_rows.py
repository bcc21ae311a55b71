"""Cuts rows off: notes the times on the log. The projector deletes what ended before them."""

from __future__ import annotations

from engine.retention.rules import cuts_at
from engine.retention.step import RetentionRun, StepReport
from engine.retention.store import note_cuts


class CutRows:
    """Rows of episodes, instances, findings, outputs and dead letters."""

    name = "rows"

    async def run(self, run: RetentionRun) -> StepReport:
        """Note how far the rows are cut off by now, unless that is known."""
        cuts = cuts_at(run.now, run.state.times, known=run.state.cuts)
        if not run.is_dry:
            await note_cuts(run.ports, cuts, by=run.by, clock=run.clock)
        said = (
            f"{each.what.value} of {each.actor_id or 'all'} before {each.before:%F %H:%M}"
            for each in cuts
        )
        return StepReport(step=self.name, says="; ".join(said))
