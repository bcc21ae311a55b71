"""`vigil episodes diff`: how two episodes differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from typer import Argument

from streams.clock import SystemClock
from streams.model.money import dollars
from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call, named
from vigil.printing import columns, tables
from vigil.printing.columns import Column, Listing
from vigil.printing.output import show_record, show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from vigil.asking.episode_diff import EpisodeDiff, StepDifference, ValueDifference

app = typer.Typer()

_CLOCK: Final = SystemClock()

NONE: Final = "none"
"""What stands for a value that one of the two does not have."""


@app.command()
def diff(
    ctx: typer.Context,
    *,
    left: Annotated[str, Argument(metavar="ID", help="The first episode's id, or its beginning.")],
    right: Annotated[str, Argument(metavar="ID", help="The second one's.")],
    is_wide: options.IsWide = False,
    is_json: options.IsJson = False,
) -> None:
    """Show how two episodes differ: the first step that does, what came of them, their costs."""

    async def compared(client: Client) -> EpisodeDiff:
        return await client.episodes.diff(await named(client, left), await named(client, right))

    found = call(ctx, compared)
    if is_json:
        row: Row = msgspec.to_builtins(found)
        show_record({**row, "is_same": found.is_same}, is_json=True)
    else:
        print_diff(found, is_wide=is_wide)


def print_diff(found: EpisodeDiff, *, is_wide: bool = False) -> None:
    """Print how two episodes differ."""
    short = columns.short_ids([found.left.episode_id, found.right.episode_id])
    ids = [short[each.episode_id] for each in (found.left, found.right)]
    same = found.left.episode_id == found.right.episode_id
    listing = Listing(
        (
            Column("", "name"),
            Column(f"first {ids[0]}", "left", room=24),
            Column(f"second {ids[1]}", "right", room=24),
        )
    )

    def section(title: str, rows: Sequence[Row]) -> None:
        if rows:
            print()
            show_table(rows, listing, title=title, is_wide=is_wide, now=_CLOCK.now())

    tables.terminal().print(tables.printable(_heading(found)), markup=False)
    if same:
        return
    section("The two", [*_compared(found.begins), *_costs(found)])
    if found.step is not None:
        section(_of_step(found.step), _compared(found.step.values))
    section("Findings that differ", _compared(found.findings))
    section("Outputs that differ", _compared(found.outputs))
    # The status is among what the two are.
    section("How they ended", _compared([each for each in found.ends if each.name != "status"]))


def _heading(found: EpisodeDiff) -> str:
    """Return in a sentence or two how the two belong together, and whether they differ."""
    if found.is_same:
        differs = "nothing differs: steps, findings, outputs and ends are the same"
    elif found.step is None:
        differs = "their steps are the same, and what came of them is not"
    elif not found.common_steps:
        differs = "no step is the same"
    elif found.common_steps == 1:
        differs = "the first step is the same"
    else:
        differs = f"the first {found.common_steps:,} steps are the same"
    return "; ".join(filter(None, (found.relation, differs)))


def _of_step(step: StepDifference) -> str:
    only = f", which only the {'first' if step.only_in == 'left' else 'second'} has"
    return f"The first step that differs: {step.step}{only if step.only_in else ''}"


def _costs(found: EpisodeDiff) -> list[Row]:
    pair = found.left, found.right
    rows: list[tuple[str, list[object]]] = [
        ("status", [each.status for each in pair]),
        ("mode", [each.mode.replace("_", " ") for each in pair]),
        ("turns", [f"{each.turns:,}" for each in pair]),
        ("calls", [f"{each.calls:,}" for each in pair]),
        ("tokens", [f"{each.tokens:,}" for each in pair]),
        ("cost (USD)", [dollars(each.usd) for each in pair] if any(e.usd for e in pair) else []),
        ("running", [columns.took(each.ms) for each in pair]),
    ]
    return [{"name": name, "left": each[0], "right": each[1]} for name, each in rows if each]


def _compared(values: Sequence[ValueDifference]) -> list[Row]:
    return [
        {"name": each.name, "left": _words(each.left), "right": _words(each.right)}
        for each in values
    ]


def _words(value: object) -> str:
    if value is None:
        return NONE
    return tables.as_words(value) if isinstance(value, Mapping) else tables.said(value)
