"""Having outputs tried again that have failed: each by itself, and each says what came of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Final

from console.approvals import actor_of
from console.errors import Mistake
from console.outcomes import Outcome, Sent, Stand, batches, watch
from console.reading import ask
from console.settings import Reading
from console.work import connected
from engine.errors import BadRequest, Refused
from engine.runtime.output_requests import retry_output
from projections.postgres.reader import ROWS_MAX, list_outputs
from streams.errors import BadName
from streams.events import LogEvent, OutputAttempted, OutputProposed, OutputRetried
from streams.log import Recorded
from streams.outputs import OutputStatus
from streams.ports import Ports

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
        Mistake: `by` or `reason` is impossible.
        UnreadableEvent: a newer version has written one of them.
        Unavailable, Incompatible: the log is away. Asking again is safe: what is being tried again
            is refused.
    """

    async def done() -> list[Outcome]:
        async with connected(reading, creates=False) as ports:
            asked: list[Sent | Outcome] = []
            for some in batches(list(dict.fromkeys(keys))):
                asked += await asyncio.gather(
                    *(_send(ports, key, by=by, reason=reason) for key in some)
                )
            sent = [each for each in asked if isinstance(each, Sent)]
            watched = iter(await watch(ports, sent, wait_s=wait_s))
            return [next(watched) if isinstance(each, Sent) else each for each in asked]

    return asyncio.run(done())


async def _send(ports: Ports, key: str, *, by: str, reason: str) -> Sent | Outcome:
    try:
        subject = ports.stack.output(key)
        records = await ports.log.read(subject)
        id_ = await retry_output(ports, key, by=by, reason=reason)
    except BadRequest as error:
        raise Mistake(str(error)) from error
    except (Refused, BadName) as error:
        return Outcome(name=key, refused=str(error))
    stand = partial(_stand, len(list(_events(records))), id_)
    return Sent(name=key, actor_id=actor_of(records), subject=subject, stand=stand)


def _stand(seen: int, id_: str, records: Iterable[Recorded]) -> Stand | None:
    """Return what came of the request `id_`, made when `seen` events had been seen."""
    for event in islice(_events(records), seen, None):
        match event:
            case OutputRetried(retry_id=retry_id) if retry_id == id_:
                return Stand(RETRIED, is_wanted=True)
            case OutputRetried(by=by):
                return Stand(f"{by} has it tried again", is_wanted=False)
            case OutputProposed():
                return Stand("another episode has proposed it anew", is_wanted=False)
            case OutputAttempted():
                return Stand("its time had come: it is being tried", is_wanted=False)
            case _:
                pass
    return None


def _events(records: Iterable[Recorded]) -> Iterable[LogEvent]:
    return (event for record in records for event in record.commit.events)
