"""Whether servers, streams, tables and nodes are as they must be, and if not, what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from engine.archive.run import ArchiveReport, last_report
from engine.cluster.differences import REMEDY as DIFFERENCE_REMEDY
from engine.cluster.differences import differences
from engine.cluster.modes import GivenOrder, ModeOrder, Orders
from engine.cluster.nodes import NodeInfo
from engine.orders.store import find_drifts
from engine.reactor.position import published
from engine.reactor.reactor import followed
from engine.retention.rules import KeptTimes, cuts_at
from engine.retention.store import read_state
from engine.retention.worker import last_run
from projections.errors import ProjectionError
from projections.postgres.compact import list_room
from projections.postgres.migrator import difference
from projections.postgres.pool import Pool
from projections.postgres.progress import PROJECTED, heads, known_positions
from projections.postgres.prune import count_old
from projections.postgres.queries import migrations
from projections.postgres.reader import list_checkpoints, measure_tables, run_sql
from streams import jetstream
from streams.clock import SystemClock
from streams.errors import StreamError
from streams.jetstream import StreamReport
from streams.jetstream.setup.cluster import version_in
from streams.layout import Stream
from streams.model.definitions import ID_KINDS, RegisteredDefinition
from streams.model.modes import NodeMode
from streams.model.retention import RetentionField
from streams.ports.all import Ports
from streams.subjects import Stack
from vigil.archiving.settings import ArchiveSpec, archive_in
from vigil.asking import instances
from vigil.asking.archiving import SAY_HOW_LONG
from vigil.asking.connect import connected, link_settings, pooled
from vigil.asking.repairs import archives, growth, losses
from vigil.asking.rows import applied_migrations
from vigil.asking.stack import GROUPS, MODES_MEAN, Rollout, read_stack, rollout_of
from vigil.settings import Config, shown

LAG_MAX: Final = 10_000
"""Messages that the rows may be behind before that is a problem: half a second of projecting."""

STILL_S_MAX: Final = 60.0
"""Longest that a checkpoint may stand still, in seconds; a lease that lapses takes less."""

PATIENCE_S: Final = 2.0
"""How long to watch such a checkpoint, in seconds: what is beyond it may be new."""

LOOK_S: Final = 0.1
"""Between two looks at it, in seconds."""

ORDER_S: Final = 0.5
"""Longest between an order and its copy, in seconds, unless whoever gave it died."""

_OF_LOSS: Final = (
    "Bring it back from a backup, or see what is lost and go on without it: "
    "`vigil recover --accept-loss`."
)
_OF_NO_REACTOR: Final = "See that a node runs without --no-react."
_OF_NOBODY: Final = "See that a projector runs: `vigil project`, or a node without --no-project."
_OF_ANOTHER: Final = (
    "Stop every projector, drop the schema vigil with CASCADE, and start one: "
    "it makes the rows again."
)
_OF_DRIFT: Final = "Have nodes see what was ordered: `vigil orders rebuild`."
_UPGRADE: Final = "Upgrade them all to one version, each in order (SIGTERM), one at a time."
_START: Final = "Start every server, and wait until they have caught up."
_UNCOMPRESS: Final = "Stop every node and run `vigil uncompress` once."
_SYNC: Final = "it must be `always` in their configuration"
_OF_ARCHIVE: Final = "See that `vigil archive run` runs daily."
_OF_TROUBLE: Final = "Do what it says, or see the projector's log; it tries again by itself."

_OF_NO_COMMITS: Final = frozenset({"claims", "refusals"})
"""The projections that follow no stream of commits."""

ARCHIVE_AGE_S_MAX: Final = 7 * 86_400
"""How long ago the archive may have run without a word about it, in seconds."""
_WEEK: Final = timedelta(days=7)

_CLOCK: Final = SystemClock()


class DoctorCheck(msgspec.Struct, frozen=True):
    """One thing looked at."""

    what: str
    status: str
    """`ok`, `note` or `problem`."""
    says: str
    remedy: str = ""
    instances: Sequence[str] | msgspec.UnsetType = msgspec.UNSET
    """The ids of what it is about, if it is about instances of a workflow; for programs."""


async def examine(config: Config) -> list[DoctorCheck]:
    """Return everything looked at, problems included."""
    of_log, streams = await _look_at_log(config)
    if not streams:
        return [*of_log, *await _look_at_rows(config, {})]
    async with connected(config, creates=False) as ports:
        seen = await read_stack(ports)
        of_orders = await look_at_orders(ports)
        of_reactors = [await look_at_reactor(ports, *place) for place in followed(ports.stack)]
        times = (await read_state(ports, clock=_CLOCK)).times
        of_events = look_at_events(ports.stack, times, streams)
        of_archive = look_at_archive(
            archive_in(), await last_report(ports), times, now=_CLOCK.now()
        )
        of_archive += [
            DoctorCheck(f"archive {part}", "problem", says, archives.REMEDY)
            for part, says in (await archives.gaps(config, archive_in(), ports)).items()
        ]
    holding = [each for each in seen.definitions if each.holds]
    of_definitions = look_at_definitions(seen.nodes, holding)
    of_rows = await _look_at_rows(config, await _heads(config))
    of_nodes = [*of_definitions, *look_at_modes(seen.orders), *of_orders, *of_reactors]
    return [
        *of_log,
        *of_events,
        *look_at_declarations(seen.nodes),
        *of_nodes,
        *of_rows,
        *await _look_at_instances(config),
        *of_archive,
        *await _look_at_growth(config),
    ]


async def look_at_losses(config: Config) -> list[DoctorCheck]:
    """Return each stream that has lost its past; one that a person has accepted has not."""
    try:
        async with pooled(config) as pool:
            known = await known_positions(pool, config.stack)
    except ProjectionError:
        known = {}  # That is a check of its own.
    found = await losses.find(config, known)
    says = {each.part: each.words for each in found.losses}
    return [
        DoctorCheck(
            f"stream {config.stack.name}-{part}",
            "problem",
            says.get(part, "was marked as one that has lost its past, and has all of it now"),
            _OF_LOSS,
        )
        for part in sorted({*says, *(each.loss.part for each in found.marks)})
    ]


async def _look_at_log(config: Config) -> tuple[list[DoctorCheck], Sequence[StreamReport]]:
    """Return how servers and streams are, and the streams if all are there and fit."""
    settings = config.settings
    link = link_settings(config)
    what = f"NATS at {shown('nats_url', settings.nats_url)}"
    try:
        inspection = await jetstream.inspect(settings.nats_url, stack=config.stack, settings=link)
    except StreamError as error:
        remedy = "Start a server with JetStream, or correct nats_url; `vigil up` brings its own."
        return [DoctorCheck(what, "problem", str(error), remedy)], ()
    says, problem = f"nats-server {inspection.server_version}", inspection.problem
    server = DoctorCheck(what, "ok", f"{says}, with JetStream")
    if problem:
        return [DoctorCheck(what, "problem", says, problem)], ()
    copies = max((each.replicas for each in inspection.streams if each.exists), default=1)
    of_servers = look_at_servers(inspection.servers, copies=copies)
    of_losses = await look_at_losses(config)
    there = [each for each in inspection.streams if each.exists or not of_losses]
    checks = [server, of_servers, *of_losses, *map(of_stream, there), *growths_of(there)]
    is_whole = all(each.exists for each in inspection.streams)
    is_usable = is_whole and all(check.status != "problem" for check in checks)
    return checks, inspection.streams if is_usable else ()


def look_at_servers(versions: Mapping[str, str], *, copies: int) -> DoctorCheck:
    """Return whether the servers of a cluster fit, and what no client can see of them."""
    said = ", ".join(
        f"{name or 'this one'} {version}" for name, version in sorted(versions.items())
    )
    if len({version_in(each) for each in versions.values()}) > 1:  # guard: doctor-server-versions
        return DoctorCheck("servers", "note", f"of several versions: {said}", _UPGRADE)
    if len(versions) < copies:  # guard: doctor-silent-server
        return DoctorCheck("servers", "note", f"{said}; streams have {copies} copies", _START)
    return DoctorCheck("servers", "ok", f"{said}; no client can see sync_interval: {_SYNC}")


def look_at_definitions(
    nodes: Sequence[NodeInfo], definitions: Sequence[RegisteredDefinition]
) -> list[DoctorCheck]:
    """Return which of the definitions in force no node runs, and why; or that all is well."""
    what = "definitions"
    if not definitions:
        return [DoctorCheck(what, "ok", "none")]
    if not nodes:
        return [DoctorCheck(what, "note", f"{len(definitions):,}, and no node is up")]
    received = [(each, rollout_of(nodes, each)) for each in definitions]
    bad = [_of_definition(each, said) for each, said in received if said.is_in_vain]
    return bad or [DoctorCheck(what, "ok", f"{len(definitions):,}, and nodes run them")]


def look_at_declarations(nodes: Sequence[NodeInfo]) -> list[DoctorCheck]:
    """Return which actors nodes declare differently; a note, as they do during a deploy."""
    return [
        DoctorCheck(each.actor, "note", each.says, DIFFERENCE_REMEDY) for each in differences(nodes)
    ]


def look_at_modes(orders: Orders) -> list[DoctorCheck]:
    """Return a note for each node and actor that people have ordered to do less than it could."""
    modes = [
        _of_mode(node, actor, mode, order)
        for node, order in sorted(orders.modes.items())
        for actor, mode in (("", order.mode), *sorted(order.actors.items()))
        if mode is not None and mode is not NodeMode.FULL
    ]
    pauses = [
        DoctorCheck(
            f"actor {actor}",
            "note",
            f"is paused, and opens no episodes: ordered {_given(order)}",
            f"To undo that: `vigil actors resume {actor}`.",
        )
        for actor, order in sorted(orders.pauses.items())
    ]
    return [*modes, *pauses]


def _of_mode(node: str, actor: str, mode: NodeMode, order: ModeOrder) -> DoctorCheck:
    of_actor = f" --actor {actor}" if actor else ""
    return DoctorCheck(
        f"node {node}, actor {actor}" if actor else f"node {node}",
        "note",
        f"{mode}: {MODES_MEAN[mode]}; ordered {_given(order)}",
        f"To undo that: `vigil mode {node} --reset{of_actor}`.",
    )


def _given(order: GivenOrder) -> str:
    """Return who has given an order, when, and why, in words."""
    at = f" at {order.at:%Y-%m-%d %H:%M:%S} UTC" if order.at else ""
    return f"by {order.by or 'somebody'}{at}{f': {order.reason}' if order.reason else ''}"


async def look_at_orders(ports: Ports) -> list[DoctorCheck]:
    """Return which modes and pauses nodes see otherwise than people ordered; or that all is well.

    An order that is given in this moment is not seen yet: what is wrong is looked at twice.
    """
    drifts = await find_drifts(ports)
    if drifts:
        await _CLOCK.sleep(ORDER_S)
        since = {each.key for each in drifts}
        # guard: fresh-order-no-problem
        drifts = [each for each in await find_drifts(ports) if each.key in since]
    problems = [DoctorCheck(each.key, "problem", each.says, _OF_DRIFT) for each in drifts]
    return problems or [DoctorCheck("orders", "ok", "nodes see what was ordered")]


async def look_at_reactor(ports: Ports, stream: Stream, partition: int) -> DoctorCheck:
    """Return whether what follows from a stream's commits is published, and by whom."""
    part = ports.stack.part(stream, partition)
    head = await ports.log.head(stream, partition=partition)
    progress = await published(ports, part)
    what, behind = f"reactor {part}", head - progress.seq
    says = f"at {progress.seq:,} of {head:,}"
    if progress.node:
        says = f"{says}, on node {progress.node}"
    if behind < 0:
        says = f"{says}: the stream is not the one that was followed"
        return DoctorCheck(what, "problem", says, "Use another stack, or bring the stream back.")
    if behind > LAG_MAX:
        return DoctorCheck(what, "problem", f"{behind:,} commits behind, {says}", _OF_NO_REACTOR)
    if behind and not progress.node:
        return DoctorCheck(what, "problem", f"stands still {says}", _OF_NO_REACTOR)
    return DoctorCheck(what, "ok", says)


def look_at_archive(
    spec: ArchiveSpec | None, report: ArchiveReport | None, times: KeptTimes, *, now: datetime
) -> list[DoctorCheck]:
    """Return what was archived last, where each journal begins, and what keeps it from more."""
    if spec is None and report is None:
        return []
    if times.of(RetentionField.JOURNAL) is None:  # guard: unused-archive-told
        says = "nothing is archived: the journal is kept for ever, as nobody says otherwise"
        return [DoctorCheck("archive", "note", says, f"To change that, {SAY_HOW_LONG}.")]
    if report is None:
        return [DoctorCheck("archive", "note", "it was never run", "Run `vigil archive run`.")]
    age_s = (now - report.at).total_seconds()
    said = f"last run {report.at:%Y-%m-%d %H:%M} UTC, by {report.by}, to {report.address}"
    is_old = age_s > ARCHIVE_AGE_S_MAX
    checks = [
        DoctorCheck("archive", "note" if is_old else "ok", said, _OF_ARCHIVE if is_old else "")
    ]
    for part in report.parts:
        floor = part.floor
        since = f", since {floor.since:%Y-%m-%d}" if floor.since is not None else ""
        says = f"archived up to {part.archived:,}, begins at {floor.seq:,}"
        checks.append(
            DoctorCheck(f"archive {part.part}", "ok", f"{says}; held by {floor.words}{since}")
        )
    return [*checks, *_of_segments(report, times)]


def _of_segments(report: ArchiveReport, times: KeptTimes) -> list[DoctorCheck]:
    """Return how long the archive keeps its segments, and why the oldest ones are there."""
    kept_s = times.of(RetentionField.ARCHIVE)
    if kept_s is None:
        return []
    oldest = [each for each in report.dropped if each.since is not None]
    says = "; ".join(
        f"{each.part} since {each.since:%Y-%m-%d}, held by {each.hold}" for each in oldest
    )
    kept = f"kept for {kept_s / 86_400:g} days"
    return [DoctorCheck("segments of the archive", "ok", f"{kept}; {says}" if says else kept)]


def _of_definition(registered: RegisteredDefinition, said: Rollout) -> DoctorCheck:
    node, problem = next(iter(said.failing.items()), ("", ""))
    says = f"{node} cannot: {problem}" if problem else f"{said.silent[0]} does not say why"
    return DoctorCheck(
        f"{ID_KINDS[registered.kind]} {registered.id}",
        "problem",
        f"nobody runs revision {registered.revision}: {says}",
        f"Apply one that nodes can run, or disable it: `vigil {GROUPS[registered.kind]}`.",
    )


async def _heads(config: Config) -> dict[str, int]:
    async with connected(config, creates=False) as ports:
        return await heads(ports, PROJECTED)


async def _look_at_rows(config: Config, heads: Mapping[str, int]) -> list[DoctorCheck]:
    what = f"Postgres at {shown('postgres_dsn', config.settings.postgres_dsn)}"
    try:
        async with pooled(config) as pool:
            (found,) = (await run_sql(pool, "SHOW server_version")).rows
            server = DoctorCheck(what, "ok", f"PostgreSQL {found[0]}")
            applied = await applied_migrations(pool)
            if applied is None:
                says = "no tables yet; the first projector makes them"
                return [server, DoctorCheck("migrations", "note", says)]
            lags = await look_at_lags(pool, config.stack, heads)
    except ProjectionError as error:
        remedy = "Start a server, or correct postgres_dsn; `vigil up` brings its own."
        return [DoctorCheck(what, "problem", str(error), remedy)]
    return [server, of_migrations(applied), *lags]


async def look_at_lags(pool: Pool, stack: Stack, heads: Mapping[str, int]) -> list[DoctorCheck]:
    """Return how each projection stands to the head of what it follows, by name."""
    places = await _checkpoints(pool, stack)
    lags = [
        await _of_lag(pool, stack, each, head=head, place=places.get(each, _NOWHERE))
        for each, head in heads.items()
    ]
    strange = sorted(places.keys() - heads.keys() - _OF_NO_COMMITS) if heads else []
    says = "the rows show streams of another layout"
    others = [DoctorCheck(f"projection {each}", "problem", says, _OF_ANOTHER) for each in strange]
    return [*lags, *others]


async def _look_at_instances(config: Config) -> list[DoctorCheck]:
    """Return which instances no node runs. Rows that cannot be asked are reported already."""
    try:
        async with pooled(config) as pool, connected(config, creates=False, is_reading=True) as log:
            rows = await instances.unserved_instances(log, pool)
    except ProjectionError:
        return []
    return [
        DoctorCheck(
            f"instances of {each.workflow_id}",
            "problem",
            f"{each.number}, {each.problem}",
            instances.REMEDY,
            each.ids,
        )
        for each in instances.by_workflow(rows)
    ]


async def _look_at_growth(config: Config) -> list[DoctorCheck]:
    """Return whether what is old goes, and how fast the rest grows. Without rows: of the log."""
    async with connected(config, creates=False, is_reading=True) as ports:
        state, last = await read_state(ports, clock=_CLOCK), await last_run(ports.gates)
    now = _CLOCK.now()
    results = growth.of_results(state.times, days=config.settings.results_days)
    told = [] if results is None else [_told("large results", results)]
    try:
        async with pooled(config) as pool:
            cuts = cuts_at(now, state.times, known=state.cuts)
            old = await count_old(pool, config.stack, cuts)
            row = await measure_tables(pool, config.stack, since=now - _WEEK)
            empty_bytes = sum(each.empty_bytes for each in await list_room(pool))
    except ProjectionError:
        return [_told("retention", growth.of_retention(state.times, last, [], now=now)), *told]
    sizes = msgspec.convert({**row, "empty_bytes": empty_bytes}, growth.TableSizes)
    return [
        _told("retention", growth.of_retention(state.times, last, old, now=now)),
        _told("growth of the tables", growth.of_tables(sizes)),
        *told,
    ]


def _told(what: str, verdict: growth.GrowthVerdict) -> DoctorCheck:
    return DoctorCheck(what, verdict.status, verdict.says, verdict.remedy)


def look_at_events(
    stack: Stack, times: KeptTimes, streams: Sequence[StreamReport]
) -> list[DoctorCheck]:
    """Return each stream of domain events that keeps them for another time than is said."""
    names = {stack.stream(Stream.EVENTS, each) for each in stack.partitions_of(Stream.EVENTS)}
    found = ((each, growth.of_events(times, each)) for each in streams if each.name in names)
    return [_told(f"events of {each.name}", verdict) for each, verdict in found if verdict]


def growths_of(reports: Sequence[StreamReport]) -> list[DoctorCheck]:
    """Return how fast streams grow, those that do."""
    found = ((each.name, growth.of_stream_growth(each)) for each in reports)
    return [_told(f"growth of {name}", each) for name, each in found if each is not None]


def of_stream(report: StreamReport) -> DoctorCheck:
    """Return whether a stream is as it must be, and all of its replicas are whole."""
    what = f"stream {report.name}"
    if not report.exists:
        return DoctorCheck(what, "note", "not there yet; the first node makes it")
    if report.is_compressed and report.replicas > 1:  # guard: doctor-compressed-copies
        says = f"compressed, with {report.replicas} copies: servers since 2.15 lose such streams"
        return DoctorCheck(what, "problem", says, _UNCOMPRESS)
    if not report.contradictions and report.behind:  # guard: doctor-replica-behind
        return DoctorCheck(what, "note", f"not whole: {', '.join(report.behind)}", _START)
    if not report.contradictions and report.is_compressed:
        return DoctorCheck(what, "note", "compressed; the next node that starts changes that")
    if not report.contradictions:
        return DoctorCheck(what, "ok", "as it must be")
    says = "; ".join(
        f"{each.field} is {each.theirs!r} and must be {each.ours!r}"
        for each in report.contradictions
    )
    remedy = "Change it with `nats stream edit`, or choose another stack."
    return DoctorCheck(what, "problem", says, remedy)


def of_migrations(applied: Mapping[str, str]) -> DoctorCheck:
    """Return whether the tables were made by this version, from `applied`: name → checksum."""
    found = difference(applied, migrations())
    missing = [each.name for each in found.missing]
    if not missing and not found.changed:
        return DoctorCheck("migrations", "ok", f"all {len(migrations())} applied")
    if found.changed:
        says = f"changed after they were applied: {', '.join(found.changed)}"
        remedy = "Install the version that applied them, or project into an empty database."
    elif found.unknown:
        says = f"of another version: with {found.unknown[0]} and without {missing[0]}"
        remedy = _OF_ANOTHER
    else:
        says = f"missing: {', '.join(missing)}"
        remedy = "Run `vigil project` or a node of this version; it applies them."
    return DoctorCheck("migrations", "problem", says, remedy)


class _Checkpoint(msgspec.Struct, frozen=True):
    """How far a projection has come."""

    journal_seq: int = 0
    trouble: str | None = None
    updated_at: datetime | None = None


_NOWHERE: Final = _Checkpoint()


async def _checkpoints(pool: Pool, stack: Stack) -> dict[str, _Checkpoint]:
    rows = await list_checkpoints(pool, stack)
    return {str(row["projection"]): msgspec.convert(row, _Checkpoint) for row in rows}


async def _of_lag(
    pool: Pool, stack: Stack, projection: str, *, head: int, place: _Checkpoint
) -> DoctorCheck:
    what, behind = f"projection {projection}", head - place.journal_seq
    says, remedy = f"at {place.journal_seq:,} of {head:,}", _OF_NOBODY
    if place.trouble is not None:
        says, remedy = f"stands still {says}: {place.trouble}", _OF_TROUBLE
    elif behind < 0:
        says, remedy = f"{says}: the stream is not the one that the rows show", _OF_ANOTHER
    elif behind > LAG_MAX:
        says = f"{behind:,} messages behind, {says}"
    elif behind and await _stands_still(pool, stack, projection, place):
        says = f"stands still {says}"
    else:
        return DoctorCheck(what, "ok", says)
    return DoctorCheck(what, "problem", says, remedy)


async def _stands_still(pool: Pool, stack: Stack, projection: str, place: _Checkpoint) -> bool:
    """Return whether the checkpoint has not moved for `STILL_S_MAX`, nor while we look."""
    moved_at = place.updated_at
    if moved_at is not None and (_CLOCK.now() - moved_at).total_seconds() <= STILL_S_MAX:
        return False
    until_s = _CLOCK.monotonic_s() + PATIENCE_S
    while _CLOCK.monotonic_s() < until_s:
        await _CLOCK.sleep(LOOK_S)
        if (await _checkpoints(pool, stack)).get(
            projection, _NOWHERE
        ).journal_seq > place.journal_seq:
            return False
    return True
