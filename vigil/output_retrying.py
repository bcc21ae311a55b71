"""Having outputs tried again that have failed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from engine.outputs.requests import retry_output
from projections.postgres.query_result import ROWS_MAX
from projections.postgres.reader import list_outputs
from streams.model.events import LogEvent, OutputAttempted, OutputRetried
from streams.model.outputs import OutputStatus
from vigil.outcomes import Outcome, Stand
from vigil.overruling import overrule
from vigil.reading import ask
from vigil.settings import Reading

RETRIED: Final = "tried again"


def failed(reading: Reading, *, actor: str | None, adapter: str | None) -> list[str]:
    """Return the keys of outputs that have failed as far as the rows show, the latest first.

    Says on stderr if there may be more than can be read at a time.

    Raises:
        PostgresUnavailable: no server there, or it does not let us in.
        Trouble: there are no rows to look at.
    """
    rows = ask(
        reading,
        lambda pool: list_outputs(
            pool,
            reading.stack,
            status=OutputStatus.FAILED,
            actor=actor,
            adapter=adapter,
            limit=ROWS_MAX,
        ),
    )
    if len(rows) == ROWS_MAX:
        print(f"vigil: these are the latest {ROWS_MAX:,}; ask again", file=sys.stderr, flush=True)
    return [str(row["output_key"]) for row in rows]


def retry(
    reading: Reading, keys: Iterable[str], *, by: str, reason: str, wait_s: float | None
) -> list[Outcome]:
    """Have outputs tried again, and return what came of that for each.

    Args:
        reading: the settings.
        keys: the outputs', each taken once.
        by: who wants it.
        reason: why.
        wait_s: as for `watch`.

    Raises:
        As `overrule`. Asking again is safe: what is being tried again is refused.
    """
    return overrule(reading, keys, retry_output, stand=_stand, by=by, reason=reason, wait_s=wait_s)


def _stand(id_: str, event: LogEvent) -> Stand | None:
    """Return what `event` means for the request `id_`; None: nothing."""
    match event:
        case OutputRetried(retry_id=retry_id) if retry_id == id_:
            return Stand(RETRIED, is_wanted=True)
        case OutputRetried(by=by):
            return Stand(f"{by} has it tried again", is_wanted=False)
        case OutputAttempted():
            return Stand("its time had come: it is being tried", is_wanted=False)
        case _:
            return None
