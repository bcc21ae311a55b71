"""An episode that was fired, as its journal has it: an answer of `fire`, and a task. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from engine.episodes.episode import ENDED, WAITING, Episode, Status
from streams.json import unraw
from streams.model.events import EpisodeBlocked, EpisodeConverged
from streams.model.money import NO_USD
from streams.model.triggers import Mode
from vigil.mcp.tool import AskPerson, ToolOutput

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension of the protocol for calls whose results come later."""

POLL_RUNNING_MS: Final = 2_000
"""How long a client is to wait between two looks at an episode that runs, in milliseconds."""

POLL_WAITING_MS: Final = 15_000
"""The same where it waits for somebody: minutes or days."""

NOT_OPENED: Final = "not_opened"
"""The status of an episode that no node has opened so far."""


class FiredEpisode(ToolOutput, frozen=True, kw_only=True):
    """An episode that was fired, and what has come of it."""

    episode_id: str
    status: str
    """`not_opened`, `queued`, `running`, `blocked`, `converging`, `delivering`; or how it has
    ended: `done`, `failed`, `partially_failed` or `canceled`."""
    actor: str = ""
    expectation: str = ""
    is_dry_run: bool = False
    summary: str = ""
    confidence: float | None = None
    classification: object = None
    findings: Mapping[str, str] = {}
    """Key → what it did with that finding."""
    outputs: Mapping[str, str] = {}
    """Key → what became of that output."""
    error_class: str = ""
    error_detail: str = ""
    cost_usd: Decimal = NO_USD
    used: str = ""
    """When the idempotency key was used before; empty: it was not, and the episode is new."""
    obstacle: str = ""
    """Why nothing begins now; empty: something does."""
    look: str = ""
    """How to look at it again."""


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode waits for that somebody outside is to do."""

    key: str
    """Names the request for as long as the episode lives."""
    says: str
    target: str
    """`episode:ID` or `output:KEY`, which asks for approval; empty: it asks for none."""
    decides: str = ""
    """The command by which a person decides; empty: no person does."""


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """An episode as a task is told of it."""

    episode_id: str
    episode: Episode
    opened_at: datetime
    changed_at: datetime
    waits: Waits | None = None


def fired_episode(episode_id: str, episode: Episode, *, look: str = "") -> FiredEpisode:
    """Return an episode as a tool tells it."""
    opened, finished = episode.opened, episode.finished
    converged = episode.converged or EpisodeConverged()
    return FiredEpisode(
        episode_id=episode_id,
        status=NOT_OPENED if opened is None else episode.status.value,
        actor="" if opened is None else opened.actor_id,
        expectation="" if opened is None else opened.expectation_id,
        is_dry_run=opened is not None and opened.mode is Mode.DRY_RUN,
        summary=converged.summary,
        confidence=converged.confidence,
        classification=unraw(converged.classification),
        findings={each.finding_key: each.outcome for each in _of(finished, "findings")},
        outputs={each.output_key: each.outcome for each in _of(finished, "outputs")},
        error_class="" if finished is None else finished.error_class,
        error_detail="" if finished is None else last_line(finished.error_detail),
        cost_usd=episode.usd_used,
        look=look,
    )


def last_line(detail: str) -> str:
    """Return what an error says, without the lines of code that it came through."""
    return detail.rstrip().rpartition("\n")[2]  # guard: answers-without-traces


def _of(finished: object, what: str) -> Sequence[Any]:
    return getattr(finished, what, ())


def block_waits(episode_id: str, episode: Episode, *, block_seq: int) -> Waits | None:
    """Return what an episode waits for that is blocked; None: it is not, or only sleeps.

    `block_seq`: of the commit that has its newest wait.
    """
    blocked = episode.blocked
    if episode.status is not Status.BLOCKED or blocked is None:
        return None
    key, approval = f"wait-{block_seq}", blocked.approval
    if approval is not None:
        who = ", ".join(approval.approvers) or "somebody"
        return Waits(
            key=key,
            says=f"it waits until {who} approves its plan",
            target=f"episode:{episode_id}",
            decides=f"vigil episodes approve {episode_id}",
        )
    return _wait(key, blocked)


def _wait(key: str, blocked: EpisodeBlocked) -> Waits | None:
    if blocked.parked is not None:
        return Waits(key=key, says="it waits for other code", target="")
    if blocked.wait is not None and blocked.wait.ref:
        return Waits(key=key, says="it waits for a signal", target="")
    return None


def output_waits(key: str, approvers: Sequence[str], *, asked_at: datetime) -> Waits:
    """Return that an output of an episode waits for approval, since `asked_at`."""
    who = ", ".join(approvers) or "somebody"
    return Waits(
        key=f"output-{key}-{asked_at.isoformat()}",
        says=f"its output {key} waits until {who} approves what is to be sent",
        target=f"output:{key}",
        decides=f"vigil outputs approve {key}",
    )


def task_of(view: TaskView, *, ask: AskPerson | None, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return an episode as a task, as the protocol has it.

    An episode that has failed is a call that was answered with an error: its task has completed.

    Args:
        ask: what a person is to open; None: nothing can be opened there.
        result: of the call, once it has ended.
    """
    episode, waits = view.episode, view.waits
    told: dict[str, Any] = {
        "taskId": view.episode_id,
        "status": status_of(episode, waits),
        "createdAt": view.opened_at.isoformat(),
        "lastUpdatedAt": view.changed_at.isoformat(),
        "ttlMs": None,
        "pollIntervalMs": POLL_WAITING_MS if episode.status in WAITING else POLL_RUNNING_MS,
        "statusMessage": _message(view),
    }
    match told["status"]:
        case "input_required":
            told["inputRequests"] = {} if ask is None else {ask.key: elicitation(ask)}
        case "completed":
            told["result"] = dict(result)
        case _:
            pass
    return told


def status_of(episode: Episode, waits: Waits | None) -> str:
    """Return the status of a task."""
    if episode.status is Status.CANCELED:
        return "cancelled"
    if episode.status in ENDED:
        return "completed"
    return "input_required" if waits is not None and waits.decides else "working"


def elicitation(ask: AskPerson) -> dict[str, Any]:
    """Return the request that a person opens a page, as the protocol has it."""
    params = {"mode": "url", "message": ask.message, "url": ask.url}
    return {"method": "elicitation/create", "params": params}


def _message(view: TaskView) -> str:
    """Return how a task is, in words of ours: what others have written is in its result."""
    episode, waits = view.episode, view.waits
    if waits is not None:
        how = f"; a person decides, with `{waits.decides}`" if waits.decides else ""
        return f"{waits.says}{how}"
    if episode.finished is not None and episode.finished.error_class:
        return f"the episode is {episode.status.value}: {episode.finished.error_class}"
    return f"the episode is {episode.status.value}"
