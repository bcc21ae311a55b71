"""`vigil lab`: recorded episodes with the code of today, models asked anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from typer import Argument, Option

from streams.clock import SystemClock
from streams.json import JsonObject
from vigil import options
from vigil.client.client import Client
from vigil.client.episodes import HISTORIES_MAX
from vigil.commands.call import alone, call
from vigil.errors import EXIT_TROUBLE, Mistake
from vigil.printing import tables
from vigil.printing.columns import SENTENCE, Column, Form, Listing
from vigil.printing.output import say_aside, show_record, show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.app.actor import Actor
    from engine.app.app import App
    from engine.operations.lab_verdict import LabCost, LabVerdict

LAST: Final = 100
"""How many episodes are run by default."""

IN_FLIGHT: Final = 4
IN_FLIGHT_MAX: Final = 64

UNKNOWN: Final = "?"
"""What stands for a cost that nobody knows."""

TITLE: Final = "Episodes that did not come out as recorded"

VERDICTS: Final = Listing(
    (
        Column("episode", "episode_id", Form.ID),
        Column("", "verdict"),
        Column("first other answer", "request"),
        Column("differs", "differs", room=SENTENCE),
        Column("it was", "answer_then", room=24),
        Column("it is", "answer_now", room=24),
        Column("tokens then/now", "tokens"),
        Column("USD then/now", "usd"),
    ),
    spare=("tokens then/now", "it was", "it is", "USD then/now"),
    wraps=("differs",),
)

_CLOCK: Final = SystemClock()


def lab(
    ctx: typer.Context,
    *,
    paths: Annotated[
        list[Path] | None,
        Argument(
            metavar="HISTORY",
            help="Files with recorded histories, or folders with files *.jsonl; without any, the"
            " episodes are those of the stack.",
        ),
    ] = None,
    app: Annotated[
        str | None,
        Option(help="The app, as module:attribute, such as watch:app; by default the settings'."),
    ] = None,
    actor: Annotated[str | None, Option(help="Run episodes of this actor of the stack.")] = None,
    expectation: Annotated[
        str | None, Option(help="With --actor: only of this expectation.")
    ] = None,
    last: Annotated[
        int, Option(min=1, max=HISTORIES_MAX, help="With --actor: how many, the newest first.")
    ] = LAST,
    model: Annotated[
        str,
        Option(help="Ask this model instead of the agents' own, such as openai:gpt-5."),
    ] = "",
    definition: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Run an actor that is defined in a file as this file has it; by default, as it"
            " was applied when each episode began.",
        ),
    ] = None,
    asks_all: Annotated[
        bool, Option("--ask-all", help="Make each request, also where it is as recorded.")
    ] = False,
    in_flight: Annotated[
        int, Option(min=1, max=IN_FLIGHT_MAX, help="How many episodes to run at a time.")
    ] = IN_FLIGHT,
    folder: Annotated[
        Path | None,
        Option(
            "--export",
            metavar="FOLDER",
            help="Write those that differ there: their histories, and a test of pytest.",
        ),
    ] = None,
    shows_all: Annotated[
        bool, Option("--all", help="List those that came out as recorded, too.")
    ] = False,
    is_wide: options.IsWide = False,
    is_json: options.IsJson = False,
) -> None:
    """Run recorded episodes with the code of today, asking models anew, and tell which differ.

    Only models are called, and only for requests that are not as recorded: the journal answers for
    tools, people and other episodes. An episode differs if its findings, outputs, classification or
    end do. Exit code 1 if one does.
    """
    from vigil.asking.lab import export, read_histories, run_lab
    from vigil.serving.app import load

    if bool(paths) == (actor is not None):
        raise Mistake("give files with histories, or --actor, whose episodes the stack has")
    if paths and expectation is not None:
        raise Mistake("--expectation goes with --actor")
    name, option = options.app_name(ctx, app)
    loaded = load(name, option=option)
    if actor is None:
        histories: Mapping[str, bytes] = read_histories(paths or ())
    else:
        histories = call(ctx, partial(_of_stack, actor=actor, expectation=expectation, last=last))
    # A test that is exported needs a file to read the definition from.
    reads_stack = actor is not None and folder is None
    defined = _defined(ctx, histories, loaded, file=definition, reads_stack=reads_stack)
    verdicts = alone(
        run_lab(
            histories,
            loaded,
            model=model,
            asks_all=asks_all,
            in_flight=in_flight,
            say=say_aside,
            defined=defined,
        )
    )
    files: Sequence[Path] = ()
    if folder is not None:
        files = export(
            folder,
            histories,
            verdicts,
            app=name,
            model=model,
            asks_all=asks_all,
            definition=definition or "",
        )
    found = [*verdicts.values()]
    if is_json:
        show_record(_as_json(found, files), is_json=True)
    else:
        print_verdicts(found, shows_all=shows_all, is_wide=is_wide)
        if files:
            say_aside(f"written: {', '.join(map(str, files))}")
    if not all(each.is_same for each in found):  # guard: lab-exit-code
        raise typer.Exit(EXIT_TROUBLE)


async def _of_stack(
    client: Client, *, actor: str, expectation: str | None, last: int
) -> Mapping[str, bytes]:
    found = await client.episodes.histories(
        actor=actor, expectation=expectation, last=last, say=say_aside
    )
    if not found:  # guard: lab-of-nothing-fails
        of = ".".join(filter(None, (actor, expectation)))
        raise Mistake(f"{of}: the stack has no episode of it that has ended by itself")
    return found


def _defined(
    ctx: typer.Context,
    histories: Mapping[str, bytes],
    app: App,
    *,
    file: str | None,
    reads_stack: bool,
) -> Mapping[str, Actor]:
    """Return history → its actor, for those that are not in the code of `app`."""
    from vigil.asking.lab import defined_by, defined_then, require_defined

    async def then(client: Client) -> Mapping[str, Actor]:
        async def read(actor: str, revision: int) -> JsonObject:
            return await client.definitions.read("actor", actor, revision=revision)

        return await defined_then(histories, app, read)

    if file is not None:
        found: Mapping[str, Actor] = defined_by(file, histories, app)
    else:
        found = call(ctx, then) if reads_stack else {}
    require_defined(histories, app, found)
    return found


def print_verdicts(
    found: Sequence[LabVerdict], *, shows_all: bool = False, is_wide: bool = False
) -> None:
    """Print the episodes that differ, or all of them, and a line that counts them."""
    verdict = {True: "same", False: "differs"} if shows_all else {}
    rows = [
        {**_row(each), "verdict": verdict.get(each.is_same)}
        for each in found
        if shows_all or not each.is_same
    ]
    if rows:
        title = "Episodes in the lab" if shows_all else TITLE
        show_table(rows, VERDICTS, is_wide=is_wide, title=title, now=_CLOCK.now())
        print()
    tables.terminal().print(_summary(found), markup=False)


def _summary(found: Sequence[LabVerdict]) -> str:
    count, differing = len(found), sum(not each.is_same for each in found)
    episodes = f"{count:,} episode{'s' * (count != 1)}"
    said = f"{episodes}, none differs"
    if differing:
        said = f"{differing:,} of {count:,} episodes {'differs' if differing == 1 else 'differ'}"
    asked = sum(each.asked for each in found)
    then, now = _total([each.then for each in found]), _total([each.now for each in found])
    usd = _pair(then, now)
    return "; ".join(
        [
            said,
            f"{asked:,} request{'s' * (asked != 1)} made",
            f"tokens then/now: {then.tokens:,} / {now.tokens:,}",
            *([f"USD then/now: {usd}"] if usd else []),
        ]
    )


def _row(verdict: LabVerdict) -> Row:
    first = verdict.divergence
    return {
        "episode_id": verdict.episode_id,
        "request": first and first.request,
        "differs": "; ".join(
            f"{each.what}: {_said(each.then)}, now {_said(each.now)}"
            for each in verdict.differences
        ),
        "answer_then": first and (first.then or "none"),
        "answer_now": first and (first.now or "none"),
        "tokens": f"{verdict.then.tokens:,} / {verdict.now.tokens:,}",
        "usd": _pair(verdict.then, verdict.now),
    }


def _said(value: object) -> str:
    if value is None:
        return "none"
    return tables.as_words(value) if isinstance(value, Mapping) else tables.said(value)


def _pair(then: LabCost, now: LabCost) -> str | None:
    """Return two costs, if any is known."""
    costs = [None if each.cost_usd is None else f"{each.cost_usd:.4f}" for each in (then, now)]
    return " / ".join(each or UNKNOWN for each in costs) if any(costs) else None


def _total(costs: Sequence[LabCost]) -> LabCost:
    known = [each.cost_usd for each in costs if each.cost_usd is not None]
    return msgspec.structs.replace(
        costs[0],
        requests=sum(each.requests for each in costs),
        tokens=sum(each.tokens for each in costs),
        cost_usd=sum(known, Decimal(0)) if known else None,
    )


def _as_json(found: Sequence[LabVerdict], files: Sequence[Path]) -> Row:
    verdicts = [{**msgspec.to_builtins(each), "is_same": each.is_same} for each in found]
    return {
        "episodes": len(found),
        "differing": sum(not each.is_same for each in found),
        "asked": sum(each.asked for each in found),
        "then": msgspec.to_builtins(_total([each.then for each in found])),
        "now": msgspec.to_builtins(_total([each.now for each in found])),
        "verdicts": verdicts,
        "files": [str(each) for each in files],
    }
