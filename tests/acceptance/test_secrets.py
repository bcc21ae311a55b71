"""A secret that a strategy handles is found where it must be, and nowhere else.

Two nodes, one of which logs JSON and the other text, run an app that is full of secrets, as a
function and as a class, under each log strategy. Then the test looks for the secrets in all that
was sent to the NATS server, all that it holds, all rows, all logs, traces and metrics, and what the
commands print.

| secret | is on the journal | is elsewhere |
| --- | --- | --- |
| in a result | as `result` of its step, and in the state of a checkpoint | nowhere |
| an argument, redacted or `_…` | in a `result` or a state, if the tool returned it | nowhere |
| a header of a request | in the `result` of an answer that quotes it | nowhere |
| a prompt, but for `full_debug` | in the `result`, if there is no synthesizer | nowhere |
| in an error of any of them | nowhere | nowhere |

One place is not looked at: a cache of results that all nodes of the stack share (`cache_scope`)
holds them as the journal does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import msgspec
import nats as nats_client
import pytest
from msgspec.structs import replace

from streams.json import NOTHING
from streams.model.events import CheckpointSaved, StepRecorded
from streams.wire.codec import decode_commit, encode_commit
from tests.acceptance.cluster import READY_MAX_S, Cluster, wait_until
from tests.acceptance.secretive import FORMS, STRATEGIES
from tests.vigil.program import Vigil

MARK: Final = "swordfish7391"

JOURNAL: Final = "vigil.episode."

ENDED_S_MAX: Final = 60.0

EXPECTED: Final = len(FORMS) * len(STRATEGIES) * 2
"""Episodes of one node: each kind ends well, and fails."""

COMMANDS: Final = (
    ("episodes", "list"),
    ("findings", "list"),
    ("outputs", "list"),
    ("dead", "list"),
    ("inbox",),
    ("actors", "list"),
    ("actors", "show", "doors"),
)

OF_AN_EPISODE: Final = ("show", "steps", "log", "replay")


class Echo:
    """An HTTP server that quotes all that it was asked, and keeps it."""

    def __init__(self) -> None:
        self.received: dict[str, list[bytes]] = {}
        """Path → all requests."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Echo]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with self._server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode()
            sizes = [line.split(b":")[1] for line in head.lower().splitlines()
                     if line.startswith(b"content-length")]  # fmt: skip
            body = await reader.readexactly(int(sizes[0]) if sizes else 0)
            self.received.setdefault(path, []).append(head + body)
            status = 400 if path.endswith("/fail") else 200
            said = json.dumps({"path": path, "asked": head.decode()}).encode()
            answer = f"HTTP/1.1 {status} x\r\nContent-Type: application/json\r\n"
            answer += f"Connection: close\r\nContent-Length: {len(said)}\r\n\r\n"
            writer.write(answer.encode() + said)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def without_results(data: bytes) -> bytes:
    """Return a commit without what only a replay reads, where secrets may be."""
    commit = decode_commit(data, subject="s", seq=1, commit_id="c").commit
    events = []
    for each in commit.events:
        match each:
            case StepRecorded():
                events.append(replace(each, result=NOTHING))
            case CheckpointSaved():
                events.append(replace(each, state=msgspec.Raw(b"null")))
            case _:
                events.append(each)
    return encode_commit(replace(commit, events=tuple(events)))


def leaks(found: dict[str, bytes]) -> list[str]:
    """Return where the mark is, with what stands around it."""
    said = []
    for place, data in found.items():
        at = data.find(MARK.encode())
        if at >= 0:
            said.append(f"{place}: …{data[max(0, at - 200) : at + 60].decode(errors='replace')}…")
    return said


class Traffic:
    """All that clients send to a NATS server, from now on."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []

    def sent_by(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """Yield the messages on the subjects that are wanted."""
        for number, (subject, data) in enumerate(self.sent):
            if wanted(subject):
                yield f"sent {subject} {number}", data

    @asynccontextmanager
    async def watched(self, url: str) -> AsyncIterator[Traffic]:
        client = await nats_client.connect(url)

        async def note(message: Any) -> None:
            headers = json.dumps(message.headers or {}).encode()
            self.sent.append((message.subject, headers + b" " + message.data))

        await client.subscribe(">", cb=note)
        await client.flush()
        try:
            yield self
        finally:
            await client.close()


async def kept(url: str) -> dict[str, bytes]:
    """Return all that the streams hold, buckets included."""
    client = await nats_client.connect(url)
    stream_data: dict[str, bytes] = {}
    try:
        js = client.jetstream()
        for info in await js.streams_info():
            name = str(info.config.name)
            for seq in range(max(1, info.state.first_seq), info.state.last_seq + 1):
                try:
                    message = await js.get_msg(name, seq)
                except nats_client.js.errors.NotFoundError:
                    continue
                data = message.data or b""
                if name.endswith("-journal"):
                    data = without_results(data)
                headers = json.dumps(message.headers or {}).encode()
                stream_data[f"{name} {message.subject} {seq}"] = headers + b" " + data
    finally:
        await client.close()
    return stream_data


async def rows(dsn: str) -> dict[str, bytes]:
    """Return every row of every table and view."""
    connection = await asyncpg.connect(dsn)
    try:
        tables = await connection.fetch(
            "select table_schema as schema, table_name as name from information_schema.tables"
            " where table_schema not in ('information_schema', 'pg_catalog')"
        )
        found = {}
        for schema, name in tables:
            every = await connection.fetch(f'select t::text as row from "{schema}"."{name}" t')  # noqa: S608 - our own words
            found |= {f"{name} {number}": each["row"].encode() for number, each in enumerate(every)}
        return found
    finally:
        await connection.close()


async def knock(cluster: Cluster, node: str) -> None:
    knocks = {
        f"{node}.{form}.{strategy}.{fails}": {"form": form, "strategy": strategy, "fails": fails}
        for form in FORMS
        for strategy in STRATEGIES
        for fails in (False, True)
    }
    await cluster.publish("door.knocked", knocks)


@pytest.mark.nightly
@pytest.mark.timeout(240)
async def test_a_secret_is_nowhere_but_in_the_results_that_a_replay_reads(cluster, tmp_path):
    async with Echo().serving() as echo, Traffic().watched(cluster.nats_url) as traffic:
        logs = await lived(cluster, echo)
        printed = await commands(cluster, Vigil(
            tmp_path, VIGIL_NATS_URL=cluster.nats_url,
            VIGIL_POSTGRES_DSN=cluster.postgres.dsn,
        ))  # fmt: skip
        held, table_rows = await kept(cluster.nats_url), await rows(cluster.postgres.dsn)
    sent = dict(traffic.sent_by(lambda subject: not subject.startswith(("_INBOX.", JOURNAL))))
    told = {
        f"telemetry {path} {number}": each
        for path, requests in echo.received.items()
        if path.startswith("/v1/")
        for number, each in enumerate(requests)
    }

    journal = b"".join(dict(traffic.sent_by(lambda subject: subject.startswith(JOURNAL))).values())
    assert f"{MARK}-result".encode() in journal, "a replay needs it"
    assert any(f"{MARK}-header".encode() in each for each in echo.received["/echo"])
    assert {"/v1/traces", "/v1/metrics"} <= set(echo.received), "telemetry has come"
    assert all((sent, held, table_rows, told)), "there is something to look at"
    assert leaks({**sent, **held, **table_rows, **logs, **printed, **told}) == []


async def lived(cluster: Cluster, echo: Echo) -> dict[str, bytes]:
    """Return the logs of two nodes, after each has ended its episodes and itself."""
    logs = {}
    for number, form in enumerate(("json", "console"), start=1):
        node = cluster.launch(
            f"n{number}",
            app="tests.acceptance.secretive:app",
            VIGIL_LOG=form,
            VIGIL_LOG_LEVEL="debug",
            SECRETIVE_MARK=MARK,
            SECRETIVE_URL=echo.url,
            OTEL_EXPORTER_OTLP_ENDPOINT=echo.url,
            OTEL_BSP_SCHEDULE_DELAY="200",
            OTEL_METRIC_EXPORT_INTERVAL="2000",
            OTEL_EXPORTER_OTLP_COMPRESSION="none",
        )
        await wait_until(lambda: "node up" in node.logged(), "the node is up", most_s=READY_MAX_S)  # noqa: B023 - it is awaited here
        await knock(cluster, node.name)
        ended = "select from vigil.episodes where finished_at is not null"
        await cluster.wait_rows(ended, number * EXPECTED, most_s=ENDED_S_MAX)
        assert await asyncio.to_thread(node.stop) == 0
        logs[f"log as {form}"] = node.logged().encode()
    return logs


async def commands(cluster: Cluster, vigil: Vigil) -> dict[str, bytes]:
    """Return what the commands print."""
    failed = "select episode_id from episodes where status = 'failed' order by queued_at limit $1"
    episodes = await cluster.query(failed, len(FORMS) * len(STRATEGIES))
    asked = [("episodes", word, str(each[0])) for each in episodes for word in OF_AN_EPISODE]
    printed = {}
    for words in (*COMMANDS, *asked):
        done = await asyncio.to_thread(vigil.run, *words)
        assert done.returncode == 0, (words, done.stderr)
        printed[" ".join(words)] = (done.stdout + done.stderr).encode()
    return printed
