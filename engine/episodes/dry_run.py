"""Dry runs: what an episode does that is not meant. Pure.

It runs whole, as any other does, to the journal and the rows, and nothing outside may tell that it
ran:

tools       One that an override stands for is not called: the override is its result. Of the
            others, those without side effects are called, since they only look; one with side
            effects is not, and its step fails as `dry_run_side_effect`.
synthesis   Done, unless an override stands for it.
people      Nobody is asked, and nothing is waited for: what an approval asks is approved at once,
            and what a wait is for has come about with `null`.
findings    Left out, each with the outcome `dry_run`; or kept under keys and an actor of their own,
            which begin with a prefix, so that they touch no finding that is meant. Whoever asks for
            a finding then gets the one that is kept under its key, and without any the one that is
            meant: what it reads is what it goes on from.
outputs     Not delivered, each with the outcome `dry_run`. Nobody is asked to approve them. One for
            which the app has no adapter fails, as it would if it were meant.
the world   Is told nothing: see `engine.episodes.events`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from engine import validation
from engine.app.actions import Pause, RequestApproval, WaitFor, fingerprint
from engine.app.findings import checked_key
from engine.app.outputs import NO_ADAPTER
from engine.app.tools import Tool
from engine.episodes.episode import Performed
from streams.json import NOTHING, raw
from streams.model.events import EpisodeConverged, EpisodeOpened, Resolution, StepKind
from streams.model.findings import Finding, FindingIntent, FindingOutcome, RaiseFinding
from streams.model.outputs import DRY_RUN, OUTCOMES, OutputOutcome, OutputStatus
from streams.model.triggers import Mode, Overrides

LEFT_OUT: Final = "dry_run"
"""Outcome of a finding that a dry run does not keep."""

NOBODY: Final = "dry_run"
"""Who has approved what a dry run asks."""

NO_OVERRIDES: Final = Overrides()

_APART: Final = ":"
"""Stands behind the prefix of what a dry run keeps. No actor has it in its id."""


def merged(fire: Overrides | None, declared: Overrides | None) -> Overrides:
    """Return what a dry run uses: of each single override, the one given with the fire, if any."""
    first, then = fire or NO_OVERRIDES, declared or NO_OVERRIDES
    return Overrides(
        tools={**then.tools, **first.tools},
        synthesis=then.synthesis if first.synthesis == NOTHING else first.synthesis,
        persist_findings=first.persist_findings or then.persist_findings,
    )


def result_of(opened: EpisodeOpened, tool_name: str) -> msgspec.Raw | None:
    """Return what stands for calling `tool_name`, a `capability.action`; None if nothing does."""
    return _overrides(opened).tools.get(tool_name)


def synthesis_of(opened: EpisodeOpened) -> msgspec.Raw | None:
    """Return what stands for a synthesis; None if nothing does."""
    synthesis = _overrides(opened).synthesis
    return None if synthesis == NOTHING else synthesis


def may_call(opened: EpisodeOpened, tool: Tool) -> bool:
    """Return whether an episode may call `tool` itself: a dry run changes nothing outside."""
    return opened.mode is Mode.LIVE or not tool.side_effect


def answer_to(action: Pause) -> Performed:
    """Return what stands for the answer of people, or for word from outside.

    Raises:
        Unencodable: the plan is nothing that JSON can say, or is too large.
    """
    mark = fingerprint(action)
    match action:
        case RequestApproval(plan=plan):
            said = {"resolution": Resolution.APPROVED.value, "by": NOBODY, "reason": ""}
            shown = validation.encode(plan, what="plan")
            kind = StepKind.APPROVAL
            return Performed(kind=kind, fingerprint=mark, args=shown, result=raw(said))
        case WaitFor(ref=ref):
            return Performed(kind=StepKind.WAIT, fingerprint=mark, args=raw({"ref": ref}))


def keeps_findings(opened: EpisodeOpened) -> bool:
    """Return whether what an episode finds is carried out."""
    return opened.mode is Mode.LIVE or bool(prefix_of(opened))


def left_out(intent: FindingIntent) -> FindingOutcome:
    """Return what becomes of an intent that is not carried out."""
    return FindingOutcome(finding_key=intent.finding_key, outcome=LEFT_OUT)


def delivers(opened: EpisodeOpened) -> bool:
    """Return whether what an episode wants delivered is."""
    return opened.mode is Mode.LIVE


def undelivered(key: str, *, has_adapter: bool) -> OutputOutcome:
    """Return what becomes of an output that is not to be delivered."""
    if has_adapter:
        return OutputOutcome(output_key=key, outcome=DRY_RUN)
    failed = OUTCOMES[OutputStatus.FAILED]
    return OutputOutcome(output_key=key, outcome=failed, error_class=NO_ADAPTER)


def set_apart(converged: EpisodeConverged, opened: EpisodeOpened) -> EpisodeConverged:
    """Return `converged` with keys of the dry run's own, if it is one that keeps its findings.

    A finding that explains another is set apart with it if it is found by the same episode;
    otherwise it is one that is meant.

    Raises:
        InvalidFinding: a key is too long with its prefix.
    """
    prefix = prefix_of(opened)
    if not prefix:
        return converged
    own = {
        intent.finding_key: checked_key(key_apart(intent.finding_key, prefix))
        for intent in converged.findings
    }

    def apart(intent: FindingIntent) -> FindingIntent:
        moved = replace(intent, finding_key=own[intent.finding_key])
        if isinstance(moved, RaiseFinding) and moved.caused_by_key is not None:
            return replace(moved, caused_by_key=own.get(moved.caused_by_key, moved.caused_by_key))
        return moved

    return replace(converged, findings=tuple(map(apart, converged.findings)))


def prefix_of(opened: EpisodeOpened) -> str:
    """Return what keys that a dry run keeps begin with; empty: it keeps none, or it is meant."""
    return _overrides(opened).persist_findings


def key_apart(key: str, prefix: str) -> str:
    """Return the key under which dry runs with `prefix` keep what they find about `key`."""
    return f"{prefix}{_APART}{key}"


def as_meant(finding: Finding, prefix: str) -> Finding:
    """Return a finding that dry runs with `prefix` keep as it would be if they were meant.

    So the episode that has asked for it may name it as it knows it, and is not led apart twice.
    """
    apart = key_apart("", prefix)
    return replace(
        finding,
        finding_key=finding.finding_key.removeprefix(apart),
        actor_id=owner_of(finding),
        caused_by_key=finding.caused_by_key.removeprefix(apart),
    )


def found_by(opened: EpisodeOpened) -> str:
    """Return the actor that an episode's findings are said to be of."""
    prefix = prefix_of(opened)
    return f"{prefix}{_APART}{opened.actor_id}" if prefix else opened.actor_id


def owner_of(finding: Finding) -> str:
    """Return the actor that looks after `finding`, whether it is meant or not."""
    return finding.actor_id.rpartition(_APART)[2]


def is_meant(finding: Finding) -> bool:
    """Return whether the world is told of `finding`: not of what a dry run keeps."""
    return _APART not in finding.actor_id


def _overrides(opened: EpisodeOpened) -> Overrides:
    """Return the overrides in force: a live episode has none, whatever its opening says."""
    return (opened.overrides or NO_OVERRIDES) if opened.mode is Mode.DRY_RUN else NO_OVERRIDES
