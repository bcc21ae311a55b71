"""More than its budget for an episode that has used it up: what people are asked, and grant. Pure.

    a call does not fit ──EpisodeBlocked(path="granted:7")──▶ people decide
            ▲                                                      │
            └──StepRecorded(path="granted:7", {"plan": …}), EpisodeResolved

The episode runs again, and its budget is what it was opened with and all that was granted since.
Denied, it ends where it was; nobody is asked again. What an actor or the stack may spend cannot be
granted so, and neither can what a child has of its parent's budget, or a step of the dollars of its
workflow's instance.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from engine.app.actions import RequestApproval
from engine.app.checks import problem_of_grant
from engine.children.rules import parent_of
from engine.episodes.episode import Episode
from engine.errors import BudgetExceeded, Refused, SpendingExceeded
from streams.model.events import GRANTED, EpisodeOpened
from streams.model.money import NO_USD, dollars, rounded_up
from streams.model.triggers import WorkflowTrigger
from streams.model.waits import OnExpiry


def request_for(
    asking: RequestApproval, episode: Episode, exceeded: BudgetExceeded
) -> RequestApproval | None:
    """Return what people are asked where a call does not fit in the budget; None: nobody is.

    By default as much again as the budget that the episode was opened with, or what the call lacks,
    if that is more.
    """
    opened = episode.opened
    # guard: windows-are-not-granted
    if opened is None or exceeded.limit == "wall_s" or isinstance(exceeded, SpendingExceeded):
        return None
    if episode.not_granted:  # guard: denied-grant-ends
        return None
    if parent_of(opened) is not None:  # guard: parents-budget-is-not-granted
        return None
    # guard: instances-budget-is-not-granted
    if exceeded.limit == "usd" and _spends_of_instance(opened):
        return None
    named = asking.plan if isinstance(asking.plan, dict) else {}
    enough = max(getattr(opened.budget, exceeded.limit), exceeded.lacks)
    more = named.get(exceeded.limit, enough)
    shown = dollars(rounded_up(more)) if exceeded.limit == "usd" else more
    told = f"{exceeded.detail}; grant {shown} more?"
    return replace(
        asking,
        plan={exceeded.limit: shown},
        summary="; ".join(filter(None, (asking.summary, told))),
        on_expiry=OnExpiry.DENY,
        editable=True,
        shared=False,
    )


def _spends_of_instance(opened: EpisodeOpened) -> bool:
    if opened.fork is not None:  # guard: fork-spends-its-own
        return False
    return isinstance(opened.trigger, WorkflowTrigger) and opened.trigger.budget_usd > NO_USD


def path_of(episode: Episode) -> str:
    """Return the path of the next request: no call of the strategy has it."""
    return f"{GRANTED}{episode.steps_recorded + 1}"


def check(plan: msgspec.Raw, episode: Episode) -> None:
    """Raise `Refused` if `plan`, as who approves has changed it, grants nothing or too much."""
    more = msgspec.json.decode(plan)
    if problem := problem_of_grant(more):
        raise Refused(f"plan: {problem}")
    # guard: instances-budget-not-changed-to
    if "usd" in more and episode.opened is not None and _spends_of_instance(episode.opened):
        raise Refused("plan: the dollars are those of its workflow's instance; grant other limits")


def not_granted(exceeded: BudgetExceeded, episode: Episode) -> BudgetExceeded:
    """Return `exceeded` with why people have granted no more."""
    if not episode.not_granted:
        return exceeded
    return exceeded.adding(f"no more was granted: {episode.not_granted}")
