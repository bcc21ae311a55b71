"""What `vigil doctor` looks at: settings, the log, the rows. Looking changes nothing."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import msgspec

from console.reading import applied_migrations
from console.settings import Reading, shown
from console.work import connected, pooled
from projections.errors import ProjectionError
from projections.postgres.queries import migrations
from projections.postgres.reader import list_checkpoints, run_sql
from streams import jetstream
from streams.errors import StreamError
from streams.jetstream import Inspection, LinkSettings, StreamReport
from streams.subjects import Stream

LAG_MAX: Final = 10_000
"""Messages that the rows may be behind before that is a problem: half a second of projecting."""

_DISTRIBUTION: Final = "vigil-engine"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing looked at."""

    what: str
    status: str
    """`ok`, `note` or `problem`."""
    says: str
    remedy: str = ""


def versions() -> dict[str, str]:
    """Return the versions of what runs here."""
    return {
        "vigil": vigil_version(),
        "python": platform.python_version(),
        "nats-py": version("nats-py"),
    }


def vigil_version() -> str:
    """Return the version of the installed package, or `unknown` when it runs uninstalled."""
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown (not installed)"


def settings_in_force(reading: Reading) -> list[dict[str, str]]:
    """Return every setting, its value without secrets, and the place that says so."""
    return [
        {"setting": key, "value": shown(key, getattr(reading.settings, key)), "from": origin}
        for key, origin in reading.origins.items()
    ]


async def examine(reading: Reading) -> list[Check]:
    """Return everything looked at, problems included."""
    of_log = await _look_at_log(reading)
    heads = await _heads(reading) if all(check.status == "ok" for check in of_log) else {}
    return [*of_log, *await _look_at_rows(reading, heads)]


async def _look_at_log(reading: Reading) -> list[Check]:
    settings = reading.settings
    link = LinkSettings(lease_ttl_s=settings.lease_s, replicas=settings.replicas)
    what = f"NATS at {shown('nats_url', settings.nats_url)}"
    try:
        inspection = await jetstream.inspect(settings.nats_url, stack=reading.stack, settings=link)
    except StreamError as error:
        remedy = "Start a server with JetStream, or correct nats_url; `vigil up` brings its own."
        return [Check(what=what, status="problem", says=str(error), remedy=remedy)]
    return [_of_server(inspection, what), *map(_of_stream, inspection.streams)]


async def _heads(reading: Reading) -> dict[str, int]:
    """Return the newest sequence of what is projected. The streams are there: none is made."""
    projected = (Stream.JOURNAL, Stream.DEAD)
    async with connected(reading) as ports:
        return {stream.value: await ports.log.head(stream) for stream in projected}


async def _look_at_rows(reading: Reading, heads: Mapping[str, int]) -> list[Check]:
    what = f"Postgres at {shown('postgres_dsn', reading.settings.postgres_dsn)}"
    try:
        async with pooled(reading) as pool:
            (found,) = (await run_sql(pool, "SHOW server_version")).rows
            server = Check(what=what, status="ok", says=f"PostgreSQL {found[0]}")
            applied = await applied_migrations(pool)
            if applied is None:
                says = "no tables yet; the first projector makes them"
                return [server, Check(what="migrations", status="note", says=says)]
            rows = await list_checkpoints(pool, reading.stack)
    except ProjectionError as error:
        remedy = "Start a server, or correct postgres_dsn; `vigil up` brings its own."
        return [Check(what=what, status="problem", says=str(error), remedy=remedy)]
    reached = {str(row["projection"]): int(str(row["journal_seq"])) for row in rows}
    lags = [_of_lag(each, head=heads[each], reached=reached.get(each, 0)) for each in heads]
    return [server, _of_migrations(applied), *lags]


def _of_server(inspection: Inspection, what: str) -> Check:
    says = f"nats-server {inspection.server_version}"
    if inspection.problem:
        return Check(what=what, status="problem", says=says, remedy=inspection.problem)
    return Check(what=what, status="ok", says=f"{says}, with JetStream")


def _of_stream(report: StreamReport) -> Check:
    what = f"stream {report.name}"
    if not report.exists:
        return Check(what=what, status="note", says="not there yet; the first node makes it")
    if not report.contradictions:
        return Check(what=what, status="ok", says="as it must be")
    says = "; ".join(
        f"{each.field} is {each.theirs!r} and must be {each.ours!r}"
        for each in report.contradictions
    )
    remedy = "Change it with `nats stream edit`, or choose another stack."
    return Check(what=what, status="problem", says=says, remedy=remedy)


def _of_migrations(applied: Mapping[str, str]) -> Check:
    ours = {migration.name: migration.checksum for migration in migrations()}
    missing = sorted(ours.keys() - applied.keys())
    changed = sorted(name for name in ours.keys() & applied.keys() if ours[name] != applied[name])
    if not missing and not changed:
        return Check(what="migrations", status="ok", says=f"all {len(ours)} applied")
    if changed:
        says = f"changed after they were applied: {', '.join(changed)}"
        remedy = "Install the version that applied them, or project into an empty database."
    else:
        says = f"missing: {', '.join(missing)}"
        remedy = "Run `vigil project` or a node of this version; it applies them."
    return Check(what="migrations", status="problem", says=says, remedy=remedy)


def _of_lag(projection: str, *, head: int, reached: int) -> Check:
    what, behind = f"projection {projection}", max(0, head - reached)
    if behind <= LAG_MAX:
        return Check(what=what, status="ok", says=f"at {reached:,} of {head:,}")
    remedy = "See that a projector runs: `vigil project`, or a node without --no-project."
    says = f"{behind:,} messages behind, at {reached:,} of {head:,}"
    return Check(what=what, status="problem", says=says, remedy=remedy)
