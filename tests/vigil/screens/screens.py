"""Prints every list and `show` command as people see it in a terminal of a width."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from decimal import Decimal
from pathlib import Path
from typing import Final

from tests.vigil.screens import rows
from vigil.asking.stack import in_short
from vigil.commands import (
    actors,
    dead,
    decisions,
    definitions,
    events,
    findings,
    inbox,
    outputs,
    publish,
    workflows,
)
from vigil.commands.episodes import diff, replay, show
from vigil.commands.people import tokens, users
from vigil.commands.repairs import doctor, repair
from vigil.commands.serving import lab, mcp
from vigil.commands.stack import archive, check, costs, mode, projections, retention
from vigil.printing import tables
from vigil.printing.output import rows_of, show_rows, show_table

FOLDER: Final = Path(__file__).parent
WIDTHS: Final = (80, 120)
NOW: Final = rows.NOW

_COLOR: Final = re.compile(r"\x1b\[[0-9;]*m")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _inbox() -> None:
    inbox.print_inbox(rows.INBOX, limit=50, why_none="", now=NOW)


def _costs() -> None:
    costs.print_costs(rows.COSTS, by="actor", now=NOW)
    costs.say_total(Decimal("3.618405"), requests=243, unpriced=2)


SCREENS: Final[Mapping[str, Callable[[], None]]] = {
    "episodes list": lambda: show.print_episodes(rows.EPISODES, now=NOW),
    "episodes list --wide": lambda: show.print_episodes(rows.EPISODES, is_wide=True, now=NOW),
    f"episodes show {str(rows.WEB)[:13]}": lambda: show.print_episode(
        rows.SHOWN, rows.STEPS, now=NOW
    ),
    f"episodes show {str(rows.SLEEPER)[:8]}": lambda: show.print_episode(rows.ASLEEP, [], now=NOW),
    f"episodes show {str(rows.SINCE_DEPLOY)[:8]}": lambda: show.print_episode(
        rows.PARKED, rows.APPROVED, now=NOW
    ),
    f"episodes show {str(rows.FORK)[:8]}": lambda: show.print_episode(
        rows.EPISODES[4], [], now=NOW
    ),
    f"episodes show {str(rows.WEB_AGAIN)[:13]}": lambda: show.print_episode(
        rows.EPISODES[3], [], now=NOW
    ),
    f"episodes steps {str(rows.WEB)[:13]}": lambda: show.print_steps(rows.STEPS),
    f"episodes steps {str(rows.SLEEPER)[:8]}": lambda: show.print_steps(rows.EVERY_STEP),
    f"episodes replay {str(rows.WEB)[:13]}": lambda: replay.print_frames(rows.FRAMES),
    f"episodes diff {str(rows.WEB)[:13]} {str(rows.FORK)[:8]}": lambda: diff.print_diff(rows.DIFF),
    f"episodes diff {str(rows.WEB)[:13]} {str(rows.WEB_AGAIN)[:13]}": lambda: diff.print_diff(
        rows.NO_DIFF
    ),
    "findings list": lambda: findings.print_findings(rows.FINDINGS, now=NOW),
    "findings show endpoint:web-3": lambda: findings.print_finding(
        rows.FINDING | {"history": rows.CHANGES}, now=NOW
    ),
    "findings chain disk:db-1": lambda: findings.print_chain(rows.CHAIN, now=NOW),
    "outputs list": lambda: outputs.print_outputs(rows.OUTPUTS, now=NOW),
    "outputs show page:web-3": lambda: outputs.print_output(
        rows.PAGE | {"history": rows.ATTEMPTS}, now=NOW
    ),
    "inbox": _inbox,
    "workflows list": lambda: workflows.print_instances(rows.INSTANCES, now=NOW),
    f"workflows show {str(rows.ROLLOUT)[:8]}": lambda: workflows.print_instance(
        rows.INSTANCE, rows.INSTANCE_STEPS, now=NOW
    ),
    "workflows definitions": lambda: show_table(
        [tables.in_words(in_short(each)) for each in rows.DEFINED], workflows.DEFINED, now=NOW
    ),
    "actors list": lambda: actors.print_actors(rows.ACTORS),
    "actors show watcher": lambda: actors.print_actor(rows.ACTORS[1], rows.EXPECTATIONS, now=NOW),
    "actors why watcher endpoint_is_healthy": lambda: actors.print_refusals(
        rows.REFUSALS, "watcher.endpoint_is_healthy", now=NOW
    ),
    "actors history capacity": lambda: definitions.print_history(rows.REVISIONS),
    "publish endpoint.probed '{}' --dry-run": lambda: publish.print_would_fire(
        "endpoint.probed", rows.WOULD
    ),
    "events why e-1": lambda: events.print_verdicts("e-1", rows.BECAME, now=NOW),
    "events would --file rule.py": lambda: events.print_would(
        rows.COUNTED, rows.WOULD_FIRE, "fire"
    ),
    "mode": lambda: mode.print_nodes(rows.NODES, rows.PAUSES, now=NOW),
    "decisions": lambda: decisions.print_decisions(rows.DECISIONS, now=NOW),
    "orders list": lambda: mode.print_orders(rows.ORDERS, now=NOW),
    "retention show": lambda: retention.print_retention(rows.KEPT_STACK, now=NOW),
    "retention hold list": lambda: retention.print_holds(rows_of(rows.KEPT_STACK.holds), now=NOW),
    "retention run --dry-run": lambda: retention.print_run(rows.RETENTION_RUN, now=NOW),
    "costs": _costs,
    "users list": lambda: users.print_people(rows.PEOPLE, now=NOW),
    "users show ann": lambda: users.print_person(
        rows.PEOPLE[0], rows.SESSIONS, rows.AUDIT, now=NOW
    ),
    "tokens list --all": lambda: tokens.print_tokens(rows.TOKENS, now=NOW),
    "dead list": lambda: show_table([rows.LETTER], dead.LISTING, now=NOW),
    "dead show": lambda: dead.print_letter(rows.LETTER, now=NOW),
    "orders rebuild --dry-run": lambda: mode.print_drifts(rows.DRIFTS, is_dry=True),
    "archive run --dry-run": lambda: archive.print_report(rows.ARCHIVED),
    "archive list": lambda: archive.print_segments(rows.SEGMENTS),
    "recover --dry-run": lambda: repair.print_recovered(rows.FORGOTTEN, is_dry=True, now=NOW),
    "reconcile --dry-run": lambda: repair.show_reconciled(rows.RECONCILED, is_dry=True),
    "projections status": lambda: projections.print_status(rows.PROJECTIONS, now=NOW),
    "projections verify": lambda: projections.print_verified(rows.VERIFIED),
    "projections rebuild": lambda: projections.print_rebuilt(rows.REBUILT),
    "sql 'select …'": lambda: show_rows(rows.ANSWER, [*rows.ANSWER[0]], is_json=False),
    "mcp pins watch:app": lambda: mcp.print_pins(rows.PINS),
    "check watch:app": lambda: show_rows(rows.PLACES, check.COLUMNS, is_json=False),
    "lab --actor watcher": lambda: lab.print_verdicts(rows.LAB),
    "lab --actor watcher --all --wide": lambda: lab.print_verdicts(
        rows.LAB, shows_all=True, is_wide=True
    ),
    "doctor": lambda: doctor.print_diagnosis(rows.VERSIONS, rows.SETTINGS, rows.CHECKS),
}
"""What is typed after `vigil` → what prints it."""


def file_of(width: int) -> Path:
    """Return the file with the screens of a width."""
    return FOLDER / f"at_{width}.txt"


def screens(width: int) -> str:
    """Return all screens of a width, each below what is typed for it."""
    return "\n".join(f"$ vigil {typed}\n{_seen(shown, width)}" for typed, shown in SCREENS.items())


def _seen(shown: Callable[[], None], width: int) -> str:
    terminal = _Terminal()
    with _wide(width), redirect_stdout(terminal), redirect_stderr(terminal):
        shown()
    lines = _COLOR.sub("", terminal.getvalue()).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


@contextmanager
def _wide(width: int) -> Iterator[None]:
    """Have terminals that begin here be so wide."""
    said = {"COLUMNS": str(width), "TERM": "xterm"}
    before = {name: os.environ.get(name) for name in said}
    os.environ |= said
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
