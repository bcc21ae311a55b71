"""The budget of an instance in dollars, and what its attempts may spend of it. Pure.

    budget = spent by ended attempts + kept for running ones + left

An attempt begins once as much is left as its expectation may spend, or the workflow that it runs;
that is kept for it until its end. One that declares nothing takes all that is left. What does not
find enough waits for the end of others, and begins with what there is if nothing else runs.
"""

from __future__ import annotations

from decimal import Decimal

from msgspec.structs import replace

from engine.errors import BudgetExceeded, SpendingExceeded
from engine.workflows.instance import Instance
from streams.model.events import EpisodeOpened
from streams.model.money import NO_USD, USD_LEAST, dollars, least_usd
from streams.model.triggers import AdaptiveBudget, Budget, WorkflowTrigger
from streams.model.workflows import StepSpec, StepStatus, Task


def shares(instance: Instance, most: Decimal, *, count: int) -> tuple[Decimal, ...]:
    """Return what the next attempts may spend that can begin now, up to `count`.

    `most`: what each may spend by its own declaration; 0: any sum. So is a share of 0.
    """
    budget = instance.begun.budget_usd
    if not budget:
        return (NO_USD,) * count
    kept = kept_usd(instance)
    left = max(NO_USD, budget - instance.spent_usd - kept)
    found: list[Decimal] = []
    while len(found) < count:
        wanted = most or left
        is_enough = NO_USD < wanted <= left  # guard: attempt-waits-for-its-dollars
        if not is_enough and (kept or found):
            break
        # guard: alone-begins-with-the-rest
        share = wanted if is_enough else max(USD_LEAST, left)
        found.append(share)
        left = max(NO_USD, left - share)
    return tuple(found)


def may_begin(instance: Instance, step: str) -> bool:
    """Return whether the dollars for an attempt at an item of `step` are there."""
    return bool(shares(instance, most_of(instance.specs[step]), count=1))


def most_of(spec: StepSpec) -> Decimal:
    """Return the most that an attempt at a step may spend by its own declaration; 0: any sum."""
    return spec.budget_usd if spec.task is None else most_of_task(spec.task)


def most_of_task(task: Task) -> Decimal:
    """Return the most that an episode of a task may spend by its own declaration; 0: any sum."""
    within = task.adaptive_budget.usd if task.adaptive_budget is not None else None
    # guard: adaptive-dollars-kept-at-most
    return max(task.budget.usd, within[1]) if within is not None else task.budget.usd


def capped(budget: Budget, share: Decimal) -> Budget:
    """Return the budget of an episode that may spend no more than `share`; 0: any sum."""
    return replace(budget, usd=least_usd(budget.usd, share))


def adapting(task: Task, share: Decimal) -> AdaptiveBudget | None:
    """Return the bounds of the adaptive budget of an episode that has such a share.

    None: it has less than it may spend by its own declaration, so that what it uses says little.
    """
    is_whole = share > USD_LEAST and share >= most_of_task(task)
    # guard: starved-episode-adapts-nothing
    return task.adaptive_budget if is_whole or not share else None


def of_share(exceeded: BudgetExceeded, opened: EpisodeOpened, declared: Decimal) -> BudgetExceeded:
    """Return `exceeded` with where the dollars come from that are less than `declared`."""
    trigger, usd = opened.trigger, opened.budget.usd
    if exceeded.limit != "usd" or isinstance(exceeded, SpendingExceeded):
        return exceeded
    if not isinstance(trigger, WorkflowTrigger) or usd != trigger.budget_usd:
        return exceeded
    if 0 < declared <= usd:
        return exceeded
    return exceeded.adding(f"{dollars(usd)} was left of its workflow's budget")


def kept_usd(instance: Instance) -> Decimal:
    """Return what running attempts may spend, in dollars."""
    running = instance.with_status(StepStatus.RUNNING)
    attempts = sum((item.budget_usd for _, item in running), NO_USD)
    undone = (each for each in instance.undoings.values() if each.ended is None)
    return attempts + sum((each.budget_usd for each in undone), NO_USD)
