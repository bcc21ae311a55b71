"""Workflows: what was started of them, and how far each is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from htpy import Element, Node

from projections.records import WorkflowSummary
from streams.model.workflows import WorkflowStatus
from vigil.client import Client
from vigil.client.page import Page
from vigil.web.drawing.charts import share
from vigil.web.drawing.parts import (
    Cell,
    card,
    chips,
    field,
    money,
    narrowing,
    none_of,
    nothing,
    pager,
    pill,
    place,
    rows_of,
    short,
    titled,
    when,
)
from vigil.web.screen import PAGE_ROWS, Drawn, PageRequest, Screen
from vigil.web.screens.episodes.episodes import DRY_RUN

FILTERS: Final = ("status", "workflow", "after")

STATUSES: Final = tuple(
    each.value for each in WorkflowStatus if each is not WorkflowStatus.UNSTARTED
)

CELLS: Final = (
    Cell("Instance", is_main=True),
    Cell("Status"),
    Cell("Done", is_number=True, is_spare=True),
    Cell("", is_spare=True),
    Cell("Cost", is_number=True, is_spare=True),
    Cell("Started", is_number=True),
)


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read a page of instances, and draw it."""
    workflow = asked.filter("workflow")
    page = await client.workflows.list(
        status=asked.filter("status"),
        workflow=workflow,
        at=asked.at,
        after=asked.filter("after"),
        limit=PAGE_ROWS,
    )
    counts = await client.workflows.count(workflow=workflow, at=asked.at)
    return Drawn(
        title="Workflows",
        parts={"filters": filters(asked, counts), "list": list_of(asked, page)},
    )


def filters(asked: PageRequest, counts: Mapping[str, int]) -> Node:
    """Return what the list can be narrowed to, with how many instances there are of each status."""
    each = ((status, status, counts.get(status, 0)) for status in STATUSES)
    return [
        chips(asked, "status", [(None, "All", sum(counts.values())), *each]),
        narrowing(asked, field("workflow", "Workflow", asked.filter("workflow")), kept=("status",)),
    ]


def list_of(asked: PageRequest, page: Page[WorkflowSummary]) -> Element:
    """Return a page of instances."""
    if not page.items:
        hint = "An event, a schedule or a person starts an instance of a workflow."
        return card("None", nothing(page.why_none or none_of(asked, "instance"), hint))
    return card(
        "Latest first",
        rows_of(
            CELLS,
            [_row(each, asked) for each in page.items],
            keys=[each.instance_id for each in page.items],
        ),
        pager(asked, page.next),
        beside=f"{len(page.items)} on this page",
    )


def _row(instance: WorkflowSummary, asked: PageRequest) -> tuple[Node, ...]:
    dry = DRY_RUN if instance.mode != "live" else ""
    said = (short(instance.instance_id), dry, instance.subject_value, _error(instance))
    name = f"{instance.workflow_id}"
    return (
        titled(place("workflows", instance.instance_id), name, " · ".join(filter(None, said))),
        pill(instance.status, waiting_words(instance)),
        f"{instance.done} of {instance.items}",
        share(instance.done, instance.items),
        money(instance.spent_usd),
        when(instance.started_at, asked.now),
    )


def _error(instance: WorkflowSummary) -> str:
    if instance.error_class is None:
        return ""
    where = f" in {instance.failed_step}" if instance.failed_step else ""
    return f"{instance.error_class}{where}"


def waiting_words(instance: WorkflowSummary) -> str:
    """Return the status of an instance, and if it waits for people, that it does."""
    if instance.status == "blocked":
        return "waits for approval" if instance.waiting else "waits for a person"
    return ""


SCREEN: Final = Screen(
    path="/workflows", draw=draw, section="/workflows", filters=FILTERS, has_past=True
)
