"""The step of retention that archives the journal, on a node whose settings name an archive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from engine.archive.run import ArchivePlan, ArchiveReport, KnownRows, archive_once, last_report
from engine.retention.step import RetentionRun, StepReport
from engine.retention.store import RetentionState
from streams.archive.archive import Archive
from streams.errors import StreamError
from streams.model.retention import RetentionField
from vigil.archiving.settings import ArchiveSpec, opened_store
from vigil.errors import VigilError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from streams.jetstream import LinkSettings
    from vigil.settings import Config

EVERY_S: Final = 20 * 3_600.0
"""Between two runs of a node, in seconds: with steps every hour, it is once a day. More often would
make many small segments."""

log = structlog.get_logger("vigil.archive")


@dataclass(frozen=True)
class ArchiveJournal:
    """Archives and purges what ended before the time that `[retention]` gives the journal."""

    config: Config
    spec: ArchiveSpec | None
    link: LinkSettings
    rows: Callable[[], Awaitable[KnownRows | None]]
    """Returns what the tables have, as `archive_once` takes it."""

    name = "journal"

    async def run(self, run: RetentionRun) -> StepReport:
        """See `RetentionStep.run`."""
        plan = plan_of(run.state, is_dry=run.is_dry)
        if plan is None:
            return StepReport(step=self.name, says="kept for ever")
        if self.spec is None:
            problem = "no archive is named: write [archive] into vigil.toml of every node"
            return StepReport(step=self.name, problem=problem)
        last = await last_report(run.ports)
        # guard: archive-runs-daily
        if last is not None and (run.now - last.at).total_seconds() < EVERY_S and not run.is_dry:
            return StepReport(step=self.name, says=f"archived {last.at:%F %H:%M} UTC")
        run.check()
        try:
            async with opened_store(self.config, self.spec, self.link) as store:
                report = await archive_once(
                    run.ports,
                    Archive(store, run.ports.stack),
                    plan,
                    rows=await self.rows(),
                    node=run.by,
                    clock=run.clock,
                )
        except (StreamError, VigilError) as error:
            log.warning("could not archive the journal", error=str(error))
            return StepReport(step=self.name, problem=str(error))
        return self._told(report)

    def _told(self, report: ArchiveReport | None) -> StepReport:
        if report is None:
            return StepReport(step=self.name, says="another process archives")
        dropped = sum(each.segments for each in report.dropped)
        held: dict[str, int] = {}
        for part in report.parts:
            by = f"{part.part}: {part.floor.words}"
            held[by] = max(0, part.archived + 1 - part.floor.seq)
        return StepReport(
            step=self.name,
            gone={
                "messages": sum(each.purged.messages for each in report.parts),
                **({"segments": dropped} if dropped else {}),
            },
            held={by: count for by, count in held.items() if count},
            says=f"{sum(each.messages for each in report.parts):,} messages archived",
        )


def plan_of(state: RetentionState, *, is_dry: bool = False) -> ArchivePlan | None:
    """Return what is archived by what the log says of retention; None: all stays for ever."""
    kept_s = state.times.of(RetentionField.JOURNAL)
    if kept_s is None:
        return None
    archive_s = state.times.of(RetentionField.ARCHIVE)
    return ArchivePlan(
        hot_s=float(kept_s),
        kept_s=None if archive_s is None else float(archive_s),
        is_dry=is_dry,
        holds=state.holds,
    )
