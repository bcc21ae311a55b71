"""`vigil export`: lists of episodes, findings, outputs, orders and costs, as files."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from typer import Argument, Option

from streams.clock import SystemClock
from vigil import options
from vigil.client.page import LIMIT_MAX
from vigil.client.types import (
    CostSummary,
    EpisodeSummary,
    FindingSummary,
    OrderSummary,
    OutputSummary,
)
from vigil.commands.call import call
from vigil.errors import Mistake, Trouble
from vigil.printing.exports import WRITERS

if TYPE_CHECKING:
    from vigil.client.client import Client
    from vigil.client.page import Page

_CLOCK: Final = SystemClock()

MOST: Final = 100_000
"""Most records of a file, unless more are asked for."""

PAGE: Final = min(1_000, LIMIT_MAX)
"""Records that are read at a time."""


class Exported(StrEnum):
    """What can be exported."""

    EPISODES = "episodes"
    FINDINGS = "findings"
    OUTPUTS = "outputs"
    ORDERS = "orders"
    COSTS = "costs"


class ExportFormat(StrEnum):
    """How it is written."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


TYPES: Final[Mapping[Exported, type[msgspec.Struct]]] = {
    Exported.EPISODES: EpisodeSummary,
    Exported.FINDINGS: FindingSummary,
    Exported.OUTPUTS: OutputSummary,
    Exported.ORDERS: OrderSummary,
    Exported.COSTS: CostSummary,
}

FILTERS: Final[Mapping[Exported, frozenset[str]]] = {
    Exported.EPISODES: frozenset(
        {"status", "actor", "expectation", "subject", "since", "until", "error_class"}
    ),
    Exported.FINDINGS: frozenset({"status", "severity", "actor"}),
    Exported.OUTPUTS: frozenset({"status", "actor", "adapter"}),
    Exported.ORDERS: frozenset({"node", "actor"}),
    Exported.COSTS: frozenset({"by", "since"}),
}
"""What each may be filtered by, as its list may."""

Text = Annotated[str | None, Option(metavar="TEXT")]
Time = Annotated[str | None, Option(metavar="TIME", help="2030-01-31T09:00:00Z, or 24h ago.")]


def export(
    ctx: typer.Context,
    what: Annotated[Exported, Argument(metavar="WHAT", help=", ".join(Exported))],
    *,
    format_: Annotated[ExportFormat, Option("--format", help="How to write it.")] = (
        ExportFormat.CSV
    ),
    out: Annotated[
        Path | None, Option("--out", metavar="FILE", help="Where to; by default it is printed.")
    ] = None,
    most: Annotated[int, Option("--most", min=1, help="Most records.")] = MOST,
    status: Text = None,
    severity: Text = None,
    actor: Text = None,
    expectation: Text = None,
    subject: Text = None,
    adapter: Text = None,
    node: Text = None,
    error_class: Text = None,
    by: Annotated[str | None, Option(metavar="COLUMN", help="What to sum costs by.")] = None,
    since: Time = None,
    until: Time = None,
) -> None:
    """Write a list as CSV, JSON lines or Parquet, with the filters of the list, page by page.

    Findings are those of any status. A file is there once all of it is written. Parquet needs --out
    and the extra `parquet`.
    """
    now = _CLOCK.now()
    given: dict[str, Any] = {
        "status": status,
        "severity": severity,
        "actor": actor,
        "expectation": expectation,
        "subject": subject,
        "adapter": adapter,
        "node": node,
        "error_class": error_class,
        "by": by,
        "since": options.read_past(since, what="--since", now=now),
        "until": options.read_past(until, what="--until", now=now),
    }
    said = {name: value for name, value in given.items() if value is not None}
    for name in said:
        if name not in FILTERS[what]:  # guard: export-has-filters-of-list
            there = ", ".join(f"--{each.replace('_', '-')}" for each in sorted(FILTERS[what]))
            raise Mistake(f"--{name.replace('_', '-')}: {what} have none; they have {there}")
    if format_ is ExportFormat.PARQUET and out is None:
        raise Mistake("--out: Parquet is not printed; give a file")
    try:
        with _target(out) as file:
            count, is_all = call(ctx, _Export(what, said, most, format_, file).write)
    except OSError as error:
        raise Trouble(f"{out}: {error.strerror or error}") from error
    if out is not None:
        print(f"{count:,} {what} in {out}")
    if not is_all:  # guard: export-says-there-is-more
        print(f"there are more than {most:,}: give --most, or a filter", file=sys.stderr)


class _Export:
    def __init__(
        self,
        what: Exported,
        said: Mapping[str, Any],
        most: int,
        format_: ExportFormat,
        file: IO[bytes],
    ) -> None:
        self._what, self._said, self._most = what, said, most
        self._format, self._file = format_, file

    async def write(self, client: Client) -> tuple[int, bool]:
        """Write records; return how many, and whether these were all."""
        writer, count = None, 0
        async for items in self._pages(client):
            # Not before: a filter that is refused prints nothing.
            writer = writer or WRITERS[self._format](self._file, TYPES[self._what])
            left = self._most - count
            kept = items[:left]  # guard: export-has-a-most
            writer.write(kept)
            count += min(len(items), left)
            if len(items) > left:
                writer.close()
                return count, False
        assert writer is not None, "a page, if an empty one"
        writer.close()
        return count, True

    async def _pages(self, client: Client) -> AsyncIterator[Sequence[msgspec.Struct]]:
        if self._what is Exported.COSTS:
            limit = min(self._most + 1, LIMIT_MAX)
            yield (await client.costs(**self._said, limit=limit)).items
            return
        read, after = self._list_of(client), None
        while True:
            page = await read(**self._said, after=after, limit=PAGE)
            yield page.items
            if page.next is None:
                return
            after = page.next

    def _list_of(self, client: Client) -> Callable[..., Awaitable[Page[Any]]]:
        match self._what:
            case Exported.EPISODES:
                return client.episodes.list
            case Exported.FINDINGS:
                self._said = {"status": None, **self._said}
                return client.findings.list
            case Exported.OUTPUTS:
                return client.outputs.list
            case _:
                return client.orders.list


@contextmanager
def _target(out: Path | None) -> Iterator[IO[bytes]]:
    """Yield where to write; a file gets its name once it is whole."""
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = out.with_name(f".{out.name}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
            yield file
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
