"""The rules of dry runs: episodes that run in full and change nothing outside. Pure.

* Tools: an override replaces the call by a result or a failure. Without one, tools without side
  effects are called; a tool with side effects is not, and its step fails as `dry_run_side_effect`.
* Synthesis: performed, unless an override replaces it.
* People: nobody is asked and nothing is awaited. An approval is approved; a wait gets `null`.
* Findings: left out, each with the outcome `dry_run`; or stored under keys and an actor with a
  prefix, apart from live ones. A read then gets the stored finding of that key, else the live one.
* Outputs: not delivered, each with the outcome `dry_run`, and nobody is asked to approve them. One
  whose adapter the app lacks fails, as in a live run.
* Public events: none; see `engine.episodes.events`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from engine import validation
from engine.app.actions import Pause, RequestApproval, Sleep, WaitFor, fingerprint
from engine.app.findings import checked_key
from engine.app.outputs import NO_ADAPTER
from engine.app.tools import SYNTHESIS, Tool
from engine.episodes.episode import Performed
from streams.json import NOTHING, raw
from streams.model.events import EpisodeConverged, EpisodeOpened, Resolution, StepKind
from streams.model.findings import Finding, FindingIntent, FindingOutcome, RaiseFinding
from streams.model.outputs import DRY_RUN, OUTCOMES, OutputOutcome, OutputStatus
from streams.model.triggers import Mode, OverrideFailure, Overrides

LEFT_OUT: Final = "dry_run"
"""Outcome of a finding that a dry run does not store."""

NOBODY: Final = "dry_run"
"""The approver in a dry run."""

NO_OVERRIDES: Final = Overrides()

_APART: Final = ":"
"""Follows the prefix in keys. No actor's id contains it."""


def merged(fire: Overrides | None, declared: Overrides | None) -> Overrides:
    """Return the overrides of a dry run: each of the fire wins over the expectation's."""
    first, then = fire or NO_OVERRIDES, declared or NO_OVERRIDES
    said = {*first.tools, *first.failures}
    if first.synthesis != NOTHING:
        said.add(SYNTHESIS)
    # guard: fired-result-for-declared-failure
    results = {name: each for name, each in then.tools.items() if name not in said}
    failures = {name: each for name, each in then.failures.items() if name not in said}
    return Overrides(
        tools={**results, **first.tools},
        failures={**failures, **first.failures},
        synthesis=first.synthesis if SYNTHESIS in said else then.synthesis,
        persist_findings=first.persist_findings or then.persist_findings,
    )


def stand_in(opened: EpisodeOpened, name: str) -> msgspec.Raw | OverrideFailure | None:
    """Return what stands for `name`, a `capability.action` or `SYNTHESIS`; None: nothing does."""
    given = _overrides(opened)
    if name in given.failures:
        return given.failures[name]
    if name != SYNTHESIS:
        return given.tools.get(name)
    return None if given.synthesis == NOTHING else given.synthesis


def may_call(opened: EpisodeOpened, tool: Tool) -> bool:
    """Return whether an episode may call `tool` itself."""
    return opened.mode is Mode.LIVE or not tool.side_effect


def answer_to(action: Pause) -> Performed:
    """Return the answer to an approval or a wait in a dry run; the plan may be `Unencodable`."""
    mark = fingerprint(action)
    match action:
        case RequestApproval(plan=plan):
            said = {"resolution": Resolution.APPROVED.value, "by": NOBODY, "reason": ""}
            shown = validation.encode(plan, what="plan")
            kind = StepKind.APPROVAL
            return Performed(kind=kind, fingerprint=mark, args=shown, result=raw(said))
        case WaitFor(ref=ref):
            return Performed(kind=StepKind.WAIT, fingerprint=mark, args=raw({"ref": ref}))
        case Sleep(seconds=seconds):
            return Performed(kind=StepKind.WAIT, fingerprint=mark, args=raw({"seconds": seconds}))


def keeps_findings(opened: EpisodeOpened) -> bool:
    """Return whether an episode's findings are applied."""
    return opened.mode is Mode.LIVE or bool(prefix_of(opened))


def left_out(intent: FindingIntent) -> FindingOutcome:
    """Return the outcome of an intent that is not applied."""
    return FindingOutcome(finding_key=intent.finding_key, outcome=LEFT_OUT)


def delivers(opened: EpisodeOpened) -> bool:
    """Return whether an episode's outputs are delivered."""
    return opened.mode is Mode.LIVE  # guard: dry-run-delivers-nothing


def undelivered(key: str, *, has_adapter: bool) -> OutputOutcome:
    """Return the outcome of an output that is not delivered."""
    if has_adapter:  # guard: dry-run-needs-adapter
        return OutputOutcome(output_key=key, outcome=DRY_RUN)
    failed = OUTCOMES[OutputStatus.FAILED]
    return OutputOutcome(output_key=key, outcome=failed, error_class=NO_ADAPTER)


def set_apart(
    converged: EpisodeConverged, opened: EpisodeOpened, *, reported: Sequence[str] = ()
) -> EpisodeConverged:
    """Return `converged` as the dry run `opened` records it; a live run as it is.

    With its own keys if it stores its findings, see `kept_apart`; otherwise it says that it raises
    nothing, and in any case that it sends nothing.
    """
    if opened.mode is Mode.LIVE:
        return converged
    return replace(
        converged,
        findings=kept_apart(converged.findings, opened, reported=reported),
        raises_nothing=bool(converged.findings) and not keeps_findings(opened),
        sends_nothing=bool(converged.outputs) and not delivers(opened),
    )


def kept_apart(
    findings: tuple[FindingIntent, ...], opened: EpisodeOpened, *, reported: Sequence[str]
) -> tuple[FindingIntent, ...]:
    """Return `findings` with the dry run's own keys, if it stores its findings.

    `reported`: the keys, already apart, of what the episode has reported before. A `caused_by` that
    the same episode does not raise names a live one. May be `InvalidFinding`.
    """
    prefix = prefix_of(opened)
    if not prefix:
        return findings
    own = {key.removeprefix(key_apart("", prefix)): key for key in reported}
    own |= {
        intent.finding_key: checked_key(key_apart(intent.finding_key, prefix))
        for intent in findings
    }

    def apart(intent: FindingIntent) -> FindingIntent:
        moved = replace(intent, finding_key=own[intent.finding_key])
        if isinstance(moved, RaiseFinding) and moved.caused_by_key is not None:
            return replace(moved, caused_by_key=own.get(moved.caused_by_key, moved.caused_by_key))
        return moved

    return tuple(map(apart, findings))


def prefix_of(opened: EpisodeOpened) -> str:
    """Return the prefix of a dry run's keys; empty: it stores none, or it is live."""
    return _overrides(opened).persist_findings  # guard: dry-finding-hidden-from-meant


def key_apart(key: str, prefix: str) -> str:
    """Return the key under which dry runs with `prefix` store a finding."""
    return f"{prefix}{_APART}{key}"


def as_meant(finding: Finding, prefix: str) -> Finding:
    """Return a finding that dry runs with `prefix` stored, under its live names."""
    apart = key_apart("", prefix)
    return replace(
        finding,
        finding_key=finding.finding_key.removeprefix(apart),
        actor_id=owner_of(finding),
        caused_by_key=finding.caused_by_key.removeprefix(apart),
    )


def outcome_as_meant(outcome: FindingOutcome, opened: EpisodeOpened) -> FindingOutcome:
    """Return an outcome of the dry run `opened` under its live key."""
    prefix = prefix_of(opened)
    key = outcome.finding_key.removeprefix(key_apart("", prefix)) if prefix else outcome.finding_key
    return replace(outcome, finding_key=key)


def own_of(findings: Iterable[Finding], prefix: str) -> dict[str, Finding]:
    """Return what dry runs with `prefix` stored, under its live names and by its live key."""
    # guard: other-dry-findings-apart
    own = (each for each in findings if each.actor_id == f"{prefix}{_APART}{owner_of(each)}")
    return {each.finding_key: each for each in (as_meant(found, prefix) for found in own)}


def found_by(opened: EpisodeOpened) -> str:
    """Return the actor that raises an episode's findings."""
    prefix = prefix_of(opened)
    return f"{prefix}{_APART}{opened.actor_id}" if prefix else opened.actor_id


def owner_of(finding: Finding) -> str:
    """Return the actor that serves `finding`, live or not."""
    return finding.actor_id.rpartition(_APART)[2]


def is_meant(finding: Finding) -> bool:
    """Return whether `finding` is live, so that its changes are published."""
    return _APART not in finding.actor_id


def _overrides(opened: EpisodeOpened) -> Overrides:
    # guard: overrides-only-in-dry-runs
    return (opened.overrides or NO_OVERRIDES) if opened.mode is Mode.DRY_RUN else NO_OVERRIDES
