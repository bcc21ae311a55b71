"""Options of the commands by which people decide, the question first, and what came of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from streams.model.commands import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.workflows.instance import Instance
    from streams.model.events import StepApprovalAsked
    from vigil.deciding import Asked, Matter
    from vigil.outcomes import Outcome
    from vigil.settings import Reading
    from vigil.tables import Row

Hash: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--hash", help="Hash of the plan that you saw, or at least its first 8 hex digits."
    ),
]
IsSure: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask first.")]
Reason: TypeAlias = Annotated[str, typer.Option(help="The reason, for people.")]
By: TypeAlias = Annotated[str | None, typer.Option(help="The person; by default the current user.")]
IsWaiting: TypeAlias = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until the decision is on the journal.")
]
Patience: TypeAlias = Annotated[
    float, typer.Option("--timeout", min=0.0, help="Longest wait, in seconds.")
]
PATIENCE_S: Final = 30.0
"""How long a decision is waited for unless it is told otherwise, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was typed with a decision."""

    verdict: Verdict
    hash: str | None
    is_sure: bool
    by: str | None
    reason: str
    wait_s: float | None
    """None: not at all."""


def settle_episode(reading: Reading, episode_id: str, choice: Choice) -> None:
    """Decide on what an episode asks, and print what came of it. Errors are as for an output."""
    from vigil.deciding import Kind, Matter
    from vigil.reading import parse_id

    _settle(reading, Matter(kind=Kind.EPISODE, name=str(parse_id(episode_id))), choice)


def settle_output(reading: Reading, key: str, choice: Choice) -> None:
    """Decide on whether an output may be delivered, and print what came of it.

    Raises:
        Mistake: what was typed cannot work.
        Trouble: the decision cannot stand, or another one stands.
    """
    from vigil.deciding import Kind, Matter

    _settle(reading, Matter(kind=Kind.OUTPUT, name=key), choice)


def settle_step(reading: Reading, instance_id: str, step: str, choice: Choice) -> None:
    """Decide on what a step of a workflow asks, and print what came of it. Errors are as above."""
    from vigil import deciding, workflows
    from vigil.reading import parse_id
    from vigil.who import who

    if choice.hash is not None:
        deciding.check_hash(choice.hash)
    instance = workflows.look(reading, str(parse_id(instance_id, of="instance")))
    asked = workflows.asked_of(instance, step, hash_=choice.hash)
    if choice.hash is None and not choice.is_sure:
        _confirm_step(instance, asked, choice.verdict)
    outcome = workflows.decide(
        reading,
        instance,
        asked,
        choice.verdict,
        by=who(reading, choice.by),
        reason=choice.reason,
        wait_s=choice.wait_s,
    )
    say([outcome])


def _settle(reading: Reading, matter: Matter, choice: Choice) -> None:
    from vigil import deciding
    from vigil.who import who

    if choice.hash is not None:
        deciding.check_hash(choice.hash)
    by = who(reading, choice.by)
    asked = deciding.look(reading, matter, by=by)
    if choice.hash is not None:
        deciding.require_hash(asked, choice.hash)
    elif not choice.is_sure:
        _confirm(asked, choice.verdict)
    outcome = deciding.decide(
        reading, asked, choice.verdict, by=by, reason=choice.reason, wait_s=choice.wait_s
    )
    say([outcome])


def _confirm(asked: Asked, verdict: Verdict) -> None:
    """Ask about an episode or an output."""
    request = asked.request
    _ask(f"{verdict} {asked.matter}?", request.as_row(), request.approval.plan_hash)


def _confirm_step(instance: Instance, asked: StepApprovalAsked, verdict: Verdict) -> None:
    """Ask about a step of a workflow."""
    from streams.json import unraw
    from vigil import tables

    row = {
        "workflow_id": instance.begun.spec.name,
        "step_id": asked.step,
        "plan_hash": asked.approval.plan_hash,
        "inputs": tables.as_json([unraw(each) for each in asked.inputs]),
    }
    _ask(f"{verdict} step {asked.step}?", row, asked.approval.plan_hash)


def _ask(question: str, row: Row, plan_hash: str) -> None:
    """Show what is to be decided, and ask; without a terminal nobody is there to be asked.

    Raises:
        Mistake: there is no terminal.
    """
    from vigil import tables
    from vigil.deciding import HASH_DIGITS_MIN
    from vigil.errors import Mistake

    if not sys.stdin.isatty():
        digits = plan_hash[:HASH_DIGITS_MIN]
        raise Mistake(f"nobody is here to be asked; say --hash {digits}, or --yes")
    terminal = tables.terminal(stderr=True)
    terminal.print(tables.record(row, width=terminal.width), crop=False)
    typer.confirm(question, abort=True, err=True)


def say(outcomes: Sequence[Outcome]) -> None:
    """Print what came of each, and on stderr what is in the way.

    Exit code 1 if one is refused, or was waited for in vain.
    """
    from vigil.errors import EXIT_TROUBLE

    for each in outcomes:
        if not each.refused:
            print(f"{each.name}: {each.done}")
    for why in sorted({each.obstacle for each in outcomes if each.obstacle}):
        print(f"vigil: {why}", file=sys.stderr)
    refused = [each for each in outcomes if each.refused]
    for each in refused:
        print(f"vigil: {each.name}: {each.refused}", file=sys.stderr)
    if refused or any(each.is_in_vain for each in outcomes):
        raise typer.Exit(EXIT_TROUBLE)
