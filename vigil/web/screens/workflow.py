"""One instance of a workflow: its steps as a graph with live states, and what each waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from htpy import Element, Node, a, code, div, fragment, li, p, small, strong, ul

from projections.records import WorkflowItem, WorkflowRecord
from streams.model.waits import progress
from vigil.client import Client
from vigil.web.drawing.graph import GraphNode, graph
from vigil.web.drawing.parts import (
    act,
    card,
    count,
    episode_link,
    facts,
    fold,
    lasted,
    many,
    may_order,
    money,
    pill,
    place,
    sheet,
    short,
    titled,
    value,
    when,
    why_field,
)
from vigil.web.screen import Drawn, PageRequest, Screen, address

ITEMS_MAX: Final = 500
"""Most items of steps that the page lists."""

ENDED: Final = frozenset({"done", "failed", "canceled"})
"""The states of an instance that has ended."""

WORST_FIRST: Final = (
    "failed",
    "paused",
    "awaiting_approval",
    "retrying",
    "running",
    "pending",
    "canceled",
    "done",
    "skipped",
)
"""The states of items: a step with several items has the first of those that one of them has."""


class StepOfGraph(msgspec.Struct, frozen=True):
    """A step, as an instance was begun with it."""

    step_id: str
    actor_id: str | None = None
    expectation_id: str | None = None
    workflow_id: str | None = None
    depends_on: tuple[str, ...] = ()


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read an instance, and draw it."""
    instance = await client.workflows.get(asked.words["id"], at=asked.at)
    steps = msgspec.convert(instance.steps or (), tuple[StepOfGraph, ...])
    return Drawn(
        title=instance.workflow_id,
        beside=fragment[pill(instance.status), code(".id")[str(instance.instance_id)]],
        parts={
            "facts": figures(instance, asked),
            "steps": steps_of(instance, steps, asked),
            "waits": waits(instance.items, asked),
            "actions": actions(instance, asked),
            "about": about(instance, asked),
        },
        side=("waits", "actions", "about"),
        up=("/workflows", "Workflows"),
    )


def figures(instance: WorkflowRecord, asked: PageRequest) -> Element:
    """Return the numbers of an instance."""
    end = instance.finished_at or asked.now
    took_ms = (end - instance.started_at).total_seconds() * 1_000
    done = sum(each.status in {"done", "skipped"} for each in instance.items)
    budget = money(instance.budget_usd)
    return facts(
        [
            ("Took" if instance.finished_at else "Since", lasted(took_ms)),
            ("Done", f"{done:,} of {len(instance.items):,}"),
            ("Spent", "unknown" if instance.spent_usd is None else money(instance.spent_usd)),
            ("Budget", budget),
            ("Depth", count(instance.depth or None)),
        ]
    )


def state_of(items: Iterable[WorkflowItem]) -> str:
    """Return the state of a step: of its items, the worst."""
    states = {each.status for each in items}
    return next((each for each in WORST_FIRST if each in states), "pending")


def steps_of(instance: WorkflowRecord, steps: Sequence[StepOfGraph], asked: PageRequest) -> Element:
    """Return the steps as a graph, and below it what is known of each."""
    by_step = _by_step(instance.items)
    is_whole = asked.filter("zoom") == WHOLE
    drawn = picture(instance, steps, by_step, is_whole=is_whole)
    other = asked.link(zoom=None if is_whole else WHOLE)
    zoom = a(".wide", href=other)["Fit the page" if is_whole else "At 100 %"]
    return card(
        "Steps",
        drawn,
        ul(".list.steps")[told_steps(steps, by_step, asked)],
        beside=many(len(steps), "step") if drawn is None else zoom,
    )


def picture(
    instance: WorkflowRecord,
    steps: Sequence[StepOfGraph],
    by_step: Mapping[str, Sequence[WorkflowItem]],
    *,
    is_whole: bool,
) -> Element | None:
    """Return the steps as a graph, each with a link to what is told of it below it."""
    nodes = [
        GraphNode(
            each.step_id,
            each.step_id,
            state_of(by_step.get(each.step_id, ())),
            f"#step-{each.step_id}",
            _below(by_step.get(each.step_id, ())),
        )
        for each in steps
    ]
    edges = [(before, each.step_id) for each in steps for before in each.depends_on]
    return graph(nodes, edges, f"Steps of {instance.workflow_id}", is_whole=is_whole)


WHOLE: Final = "100"


def _by_step(items: Iterable[WorkflowItem]) -> Mapping[str, Sequence[WorkflowItem]]:
    found: dict[str, list[WorkflowItem]] = {}
    for each in items:
        found.setdefault(each.step_id, []).append(each)
    return found


def _below(items: Sequence[WorkflowItem]) -> str:
    """Return the state of a step in words, with how many of its items are done."""
    word = state_of(items).replace("_", " ")
    if len(items) <= 1:
        return word
    done = sum(each.status == "done" for each in items)
    return f"{word} · {done:,} of {len(items):,}"


def told_steps(
    steps: Sequence[StepOfGraph],
    by_step: Mapping[str, Sequence[WorkflowItem]],
    asked: PageRequest,
) -> list[Element]:
    """Return what is known of each step, in the order in which they were declared."""
    left = ITEMS_MAX
    drawn = []
    for step in steps:
        items = by_step.get(step.step_id, ())
        drawn.append(_step(step, items[:left], len(items), asked))
        left -= len(items[:left])
    return drawn


def _step(
    step: StepOfGraph, items: Sequence[WorkflowItem], whole: int, asked: PageRequest
) -> Element:
    runs = step.workflow_id or f"{step.actor_id} / {step.expectation_id}"
    after = ", ".join(step.depends_on)
    only = items[0] if whole == 1 and items else None
    return li(id=f"step-{step.step_id}", data_key=step.step_id)[
        div[
            titled(place("episodes", only.episode_id), step.step_id)
            if only is not None and only.episode_id
            else strong[step.step_id],
            small[" · ".join(filter(None, (runs, after and f"after {after}")))],
            only is not None and _told(only, asked),
            whole > 1 and fold(many(whole, "item"), _items(items, asked), key=f"i{step.step_id}"),
            len(items) < whole and small[f"{whole - len(items):,} more are not shown"],
        ],
        pill(state_of(items)),
    ]


def _items(items: Sequence[WorkflowItem], asked: PageRequest) -> Element:
    return ul(".items")[
        (
            li(data_key=str(each.item))[
                pill(each.status),
                f" {each.item} ",
                episode_link(each.episode_id),
                _told(each, asked),
            ]
            for each in items
        )
    ]


def _told(item: WorkflowItem, asked: PageRequest) -> Node:
    """Return what has become of an item, as small lines."""
    error = ": ".join(filter(None, (item.error_class, item.error_detail)))
    undone = item.compensation_status
    return fragment[
        (item.attempts or 0) > 1 and small[f"attempt {item.attempts}"],
        error and small(".error-text")[error[:ERROR_CHARS_MAX]],
        fragment[small["tried again ", when(item.retry_at, asked.now)]] if item.retry_at else None,
        small[f"undone by an episode: {undone} ", episode_link(item.compensation_episode_id)]
        if undone
        else None,
        item.decided_by
        and small[
            f"decided by {item.decided_by}", item.decided_reason and f": {item.decided_reason}"
        ],
        small["as in episode ", episode_link(item.reused_episode_id)]
        if item.reused_episode_id
        else None,
    ]


ERROR_CHARS_MAX: Final = 400
"""Most of an error that the list has; the episode's page has all of it."""


def waits(items: Sequence[WorkflowItem], asked: PageRequest) -> Node:
    """Return what waits for a person, each with the way to answer it."""
    asking = [each for each in items if each.status == "awaiting_approval"]
    paused = list(dict.fromkeys(each.step_id for each in items if each.status == "paused"))
    if not asking and not paused:
        return None
    return div(".note")[
        (
            fragment[
                strong[each.summary or f"{each.step_id} waits for approval"],
                small[
                    "since ",
                    when(each.asked_at, asked.now),
                    fragment[", until ", when(each.expires_at, asked.now)]
                    if each.expires_at
                    else None,
                    bool(each.approvers) and f" · {', '.join(each.approvers or ())} may decide",
                    each.quorum > 1 and f" · {progress(each.quorum, each.approved_by)}",
                ],
            ]
            for each in asking[:ASKING_MAX]
        ),
        (strong[f"{step} has failed, and waits for a person"] for step in paused),
        bool(asking)
        and asked.at is None
        and a(".btn.primary", href=address("/inbox", kind="workflow_step"))["Decide"],
    ]


ASKING_MAX: Final = 20
"""Most approvals that the page names; the inbox has all of them."""


def actions(instance: WorkflowRecord, asked: PageRequest) -> Node:
    """Return what people may order about an instance."""
    if not may_order(asked) or instance.status in ENDED:
        return None
    id_ = str(instance.instance_id)
    paused = list(dict.fromkeys(each.step_id for each in instance.items if each.status == "paused"))
    return fragment[
        (
            card(
                f"Step {step} is paused",
                act(
                    "workflows.retry",
                    "Try again",
                    {"id": id_, "step": step},
                    why_field(),
                    is_primary=True,
                ),
                act("workflows.skip", "Go on without", {"id": id_, "step": step}, why_field()),
                is_padded=True,
            )
            for step in paused
        ),
        instance.status not in {"stopping", "compensating"}
        and card(
            "Stop it",
            p(".muted")["Running steps end, and finished ones are undone."],
            act("workflows.cancel", "Cancel", {"id": id_}, why_field(), is_danger=True),
            is_padded=True,
        ),
    ]


def about(instance: WorkflowRecord, asked: PageRequest) -> Element:
    """Return where an instance comes from."""
    error = ": ".join(filter(None, (instance.error_class, instance.error_detail)))
    parent = instance.parent_instance_id
    event = str(instance.trigger_ref.get("event_id") or "")
    canceled = " because ".join(filter(None, (instance.canceled_by, instance.cancel_reason)))
    return card(
        "About it",
        sheet(
            [
                ("Subject", instance.subject_value),
                ("Error", error),
                ("Failed step", instance.failed_step),
                ("Canceled by", canceled),
                ("Not undone", ", ".join(instance.not_undone or ())),
                ("Started", when(instance.started_at, asked.now)),
                (
                    "Trigger",
                    fragment[
                        f"{instance.trigger_type} {instance.trigger_ref.get('event_type') or ''} ",
                        event and a(href=place("events", event))["why"],
                    ],
                ),
                (
                    "Part of",
                    a(href=place("workflows", parent))[
                        f"{short(parent)}, step {instance.parent_step_id}"
                    ]
                    if parent
                    else None,
                ),
                ("Mode", instance.mode if instance.mode != "live" else None),
                ("Key", instance.dedupe_key),
                (
                    "Definition",
                    instance.definition_revision
                    and a(href=place("definitions", "workflow", instance.workflow_id))[
                        f"revision {instance.definition_revision}"
                    ],
                ),
            ]
        ),
        fold("Trigger, as it was", value(instance.trigger_ref), key="trigger"),
        fold("As a command", value(f"vigil workflows show {instance.instance_id}"), key="command"),
    )


SCREEN: Final = Screen(
    path="/workflows/{id}", draw=draw, section="/workflows", filters=("zoom",), has_past=True
)
