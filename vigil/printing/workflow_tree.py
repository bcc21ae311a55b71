"""A picture of an instance of a workflow: a row per step, and the graph as a tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rich.text import Text
from rich.tree import Tree

from engine.app.workflow import depths
from engine.workflows.budget import kept_usd
from engine.workflows.instance import Instance, StepState
from streams.json import unraw
from streams.model.workflows import StepSpec, StepStatus
from vigil.printing import tables

STYLES: Final = {
    StepStatus.PENDING: "dim",
    StepStatus.AWAITING_APPROVAL: "magenta",
    StepStatus.RUNNING: "bold cyan",
    StepStatus.FAILED: "bold red",
    StepStatus.RETRYING: "yellow",
    StepStatus.PAUSED: "magenta",
    StepStatus.DONE: "green",
    StepStatus.SKIPPED: "dim",
    StepStatus.CANCELED: "dim",
}


def record_of(instance: Instance) -> dict[str, object]:
    """Return an instance as one row, without its steps."""
    begun, finished, stopped = instance.begun, instance.finished, instance.aborted
    asked = instance.cancel_asked
    return {
        "instance_id": begun.instance_id,
        "workflow_id": begun.spec.name,
        "status": instance.status.value,
        "mode": begun.mode.value,
        "subject": begun.subject or None,
        "held_by": begun.held_by or None if instance.is_held else None,
        "started_at": instance.started_at,
        "updated_at": instance.at,
        "error_class": stopped.error_class if stopped else None,
        "error_detail": stopped.error_detail if stopped else None,
        "failed_step": stopped.step or None if stopped else None,
        "canceled_by": asked.by if asked else None,
        "not_undone": ", ".join(finished.not_undone) or None if finished else None,
        "parent_instance_id": begun.parent.instance_id if begun.parent else None,
        "budget_usd": begun.budget_usd or None,
        "spent_usd": instance.spent_usd,
        "kept_usd": kept_usd(instance),
    }


def rows_of(instance: Instance) -> list[dict[str, object]]:
    """Return a row for each item of the steps, in the order of the graph."""
    depth = depths({name: spec.depends_on for name, spec in instance.specs.items()})
    rows: list[dict[str, object]] = []
    for name in sorted(instance.specs, key=lambda each: depth[each]):
        spec, step = instance.specs[name], instance.steps[name]
        task, flow = spec.task, f"workflow {spec.workflow}"
        runs = flow if task is None else f"{task.actor_id}.{task.expectation_id}"
        for number, item in enumerate(step.items):
            rows.append(
                {
                    "depth": depth[name],
                    "step_id": f"{name}[{number}]" if spec.fans_out else name,
                    "status": item.status.value,
                    "runs": runs,
                    "depends_on": ", ".join(spec.depends_on) or None,
                    "attempts": item.attempt,
                    "budget_usd": item.budget_usd or None,
                    "episode_id": item.episode_id or None,
                    "reused_episode_id": item.reused_episode_id or None,
                    "error_class": item.error_class or None,
                    "error_detail": item.error_detail or None,
                    "retry_at": item.retry_at,
                    "result": unraw(item.result),
                    "plan_hash": step.asked.approval.plan_hash if step.asked else None,
                }
            )
    return rows


def tree_of(instance: Instance) -> Tree:
    """Return the steps, each below the last one that it waits for; the others are named."""
    begun = instance.begun
    depth = depths({name: spec.depends_on for name, spec in instance.specs.items()})
    tree = Tree(Text(f"{begun.spec.name} {begun.instance_id}: {instance.status.value}", "bold"))
    branches: dict[str, Tree] = {}
    for name in sorted(instance.specs, key=lambda each: depth[each]):
        spec = instance.specs[name]
        above = max(spec.depends_on, key=lambda each: depth[each], default="")
        others = [each for each in spec.depends_on if each != above]
        line = _line(spec, instance.steps[name], others)
        branches[name] = (branches[above] if above else tree).add(line)
    return tree


def _line(spec: StepSpec, step: StepState, others: Iterable[str]) -> Text:
    line = Text(spec.id)
    for number, (status, count) in enumerate(Counter(item.status for item in step.items).items()):
        line.append(", " if number else "  ")
        times = f"{count} " if len(step.items) > 1 else ""
        line.append(f"{times}{status.value}", STYLES[status])
    failures = {item.error_class for item in step.items if item.error_class}
    if failures:
        line.append(f"  {tables.printable(', '.join(sorted(failures)))}", "red")
    if others := list(others):
        line.append(f"  after {', '.join(others)}, too", "dim")
    return line
