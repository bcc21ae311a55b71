"""Findings: a list, the worst first, and one with its history and what explains it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from htpy import Element, Node, a, code, del_, div, fragment, ins, li, ol, p, small, span, strong

from projections.records import FindingEventRow, FindingRecord, FindingSummary, RelatedFinding
from streams.model.findings import Severity
from vigil.client import Client
from vigil.client.page import FINDING_STATUSES, Page
from vigil.printing.tables import as_json
from vigil.web.drawing.graph import GraphNode, graph
from vigil.web.drawing.icons import icon
from vigil.web.drawing.parts import (
    Cell,
    act,
    card,
    chips,
    copied,
    count,
    episode_link,
    facts,
    field,
    fold,
    listed,
    look,
    many,
    may_order,
    money,
    narrowing,
    none_of,
    nothing,
    pager,
    pill,
    place,
    rows_of,
    sheet,
    titled,
    value,
    when,
    why_field,
)
from vigil.web.screen import AT, PAGE_ROWS, Drawn, PageRequest, Screen
from vigil.web.screens.stack.decisions import behind

FILTERS: Final = ("status", "severity", "actor", "after")

ACTIVE: Final = "active"

ANY: Final = "any"
"""The filter of who wants findings of every status."""

COUNTED_MAX: Final = 1_000
"""Most findings of a status that are counted: of more, so many and a plus are told."""

SEVERITIES: Final = tuple(each.value for each in reversed(Severity))
"""The worst first."""

CELLS: Final = (
    Cell("Finding", is_main=True),
    Cell("Severity"),
    Cell("Status", is_spare=True),
    Cell("Actor", is_spare=True),
    Cell("Changed", is_number=True),
)


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read a page of findings, and draw it."""
    status, severity = asked.filter("status") or ACTIVE, asked.filter("severity")
    actor = asked.filter("actor")
    page = await client.findings.list(
        status=None if status == ANY else status,
        severity=severity,
        actor=actor,
        at=asked.at,
        after=asked.filter("after"),
        limit=PAGE_ROWS,
    )
    by_status: Mapping[str, int] | None = None
    if asked.at is None:  # What was is counted row by row.
        by_status = await client.findings.count(
            severity=severity, actor=actor, most=COUNTED_MAX + 1
        )
    active: Mapping[str, int] | None = None
    if (
        status == ACTIVE and actor is None
    ):  # There are few of them; others would have to be counted.
        active = await client.findings.count_active(at=asked.at)
    return Drawn(
        title="Findings",
        parts={
            "filters": filters(asked, by_status, active),
            "list": list_of(asked, page),
        },
    )


def filters(
    asked: PageRequest, by_status: Mapping[str, int] | None, active: Mapping[str, int] | None
) -> Node:
    """Return what the list can be narrowed to, with how many findings there are of each.

    Args:
        by_status: status → how many have it, up to one more than are told; None: statuses have no
            numbers.
        active: severity → how many are active; None: severities have none.
    """
    severities = [
        (None, "All", _number(active)),
        *((each, each, _number(active, each)) for each in SEVERITIES),
    ]
    statuses = [
        *((_filter(each), each, _told(by_status, each)) for each in FINDING_STATUSES),
        (ANY, "any status", _told(by_status)),
    ]
    return [
        chips(asked, "severity", severities),
        chips(asked, "status", statuses),
        narrowing(
            asked, field("actor", "Actor", asked.filter("actor")), kept=("status", "severity")
        ),
    ]


def _filter(status: str) -> str | None:
    return None if status == ACTIVE else status


def _number(counts: Mapping[str, int] | None, of: str | None = None) -> int | None:
    if counts is None:
        return None
    return sum(counts.values()) if of is None else counts.get(of, 0)


def _told(counts: Mapping[str, int] | None, of: str | None = None) -> str | None:
    """Return how many have a status, or any: a plus says that there may be more."""
    if counts is None:
        return None
    counted = [counts.get(of, 0)] if of is not None else [*counts.values()]
    number = sum(min(each, COUNTED_MAX) for each in counted)
    return f"{number:,}+" if any(each > COUNTED_MAX for each in counted) else f"{number:,}"


def list_of(asked: PageRequest, page: Page[FindingSummary]) -> Element:
    """Return a page of findings."""
    if not page.items:
        hint: Node = "Episodes raise findings: an actor returns raise_finding(…)."
        says = "No finding is active." if asked.at is None else "No finding was active then."
        if asked.filters.keys() - {AT}:
            hint = a(href=asked.path)["Show all that are active"]
            says = none_of(asked, "finding")
        return card("None", nothing(page.why_none or says, hint))
    return card(
        "Worst first",
        rows_of(
            CELLS,
            [_row(each, asked) for each in page.items],
            keys=[f"{each.finding_key}.{each.raise_no}" for each in page.items],
        ),
        pager(asked, page.next),
        beside=f"{len(page.items)} on this page",
    )


def _row(finding: FindingSummary, asked: PageRequest) -> tuple[Node, ...]:
    subject = " ".join(filter(None, (finding.subject_kind, finding.subject_id)))
    below = " · ".join(filter(None, (finding.class_, subject, finding.finding_key)))
    return (
        titled(place("findings", finding.finding_key), finding.summary, below),
        pill(finding.severity),
        pill(finding.status, "acknowledged" if _is_acknowledged(finding) else ""),
        finding.actor_id,
        when(finding.updated_at, asked.now),
    )


def _is_acknowledged(finding: FindingSummary) -> bool:
    return finding.status == ACTIVE and finding.acknowledged_by is not None


async def draw_one(client: Client, asked: PageRequest) -> Drawn:
    """Read a finding and what explains it, and draw them."""
    key = asked.words["key"]
    finding = await client.findings.get(key, at=asked.at)
    # What explains it, and what all of that has cost, is known as of now only.
    related = await client.findings.related(key) if asked.at is None else ()
    episodes = {each.episode_id for each in finding.history if each.episode_id is not None}
    decided = await client.approvals.decided(episode_ids=sorted(episodes), at=asked.at)
    return Drawn(
        title=finding.summary or key,
        beside=fragment[pill(finding.severity), pill(finding.status), code(".id")[key]],
        parts={
            "facts": figures(finding, related, asked),
            "causes": causes(related),
            "approvals": behind(decided.items, asked),
            "history": history(finding.history, asked),
            "actions": actions(finding, asked),
            "about": about(finding, asked),
        },
        side=("actions", "about"),
        up=("/findings", "Findings"),
    )


def figures(
    finding: FindingRecord, related: Sequence[RelatedFinding], asked: PageRequest
) -> Element:
    """Return the numbers of a finding."""
    own = next((each for each in related if not each.depth), None)
    return facts(
        [
            ("Raised", when(finding.raised_at, asked.now)),
            ("Changed", when(finding.updated_at, asked.now)),
            ("Expires", when(finding.expires_at, asked.now)),
            ("Ended", when(finding.cleared_at, asked.now)),
            ("Times raised", count(finding.raise_no)),
            ("Updates", updates(finding)),
            ("Episodes", count(own.episodes) if own else None),
            ("Their cost", money(own.cost_usd) if own else None),
            ("Confidence", f"{finding.confidence:.0%}"),
        ]
    )


def updates(finding: FindingRecord) -> str:
    """Return how often a finding was seen again since it was raised last, as far as is read."""
    kinds = [each.kind for each in finding.history if each.raise_no == finding.raise_no]
    number = kinds.count(UPDATED)
    return f"{number:,}{'' if RAISED in kinds else '+'}" if number else ""


def causes(related: Sequence[RelatedFinding]) -> Node:
    """Return what explains a finding and what it explains, as a picture and as a list."""
    if len(related) <= 1:
        return None
    keys = {each.finding_key for each in related}
    edges = [
        (each.caused_by_key, each.finding_key)
        for each in related
        if each.caused_by_key is not None and each.caused_by_key in keys
    ]
    nodes = [
        GraphNode(
            each.finding_key,
            each.summary or each.finding_key,
            each.severity if each.status == ACTIVE else each.status,
            place("findings", each.finding_key),
            " · ".join(filter(None, (each.severity, each.status, money(each.cost_usd)))),
        )
        for each in related
    ]
    together = money(related[0].cost_usd_of_all)
    return card(
        "Causes",
        graph(nodes, edges, "What explains this finding, and what it explains"),
        listed([_related(each) for each in related]),
        beside=f"{len(related)} findings" + (f", {together} together" if together else ""),
    )


def _related(finding: RelatedFinding) -> Node:
    cost = money(finding.cost_usd)
    words = (_way(finding.depth), many(finding.episodes, "episode"), cost)
    return fragment[
        div[
            titled(place("findings", finding.finding_key), finding.summary or finding.finding_key),
            small[" · ".join(filter(None, words))],
        ],
        pill(finding.severity if finding.status == ACTIVE else finding.status),
    ]


def _way(depth: int) -> str:
    if not depth:
        return "this one"
    steps = "" if abs(depth) == 1 else f", {abs(depth)} steps away"
    return f"explains it{steps}" if depth < 0 else f"explained by it{steps}"


def history(changes: Sequence[FindingEventRow], asked: PageRequest) -> Element:
    """Return what happened to a finding, the latest first."""
    return card(
        "History",
        ol(".changes")[(_entry(each, asked) for each in folded(changes))],
        beside=many(len(changes), "change"),
    )


Changed = tuple[FindingEventRow, FindingEventRow | None]
"""A change, and the one before it; None: it is the first of its raise."""


def folded(changes: Sequence[FindingEventRow]) -> list[list[Changed]]:
    """Return changes, the latest first; those that follow one another and change nothing as one."""
    pairs = [
        (each, before if before is not None and before.raise_no == each.raise_no else None)
        for each, before in zip(changes, [*changes[1:], None], strict=True)
    ]
    found: list[list[Changed]] = []
    for each in pairs:
        if found and _is_seen_again(each) and _is_seen_again(found[-1][-1]):
            found[-1].append(each)
        else:
            found.append([each])
    return found


def _is_seen_again(pair: Changed) -> bool:
    """Return whether a finding was raised again as it was, by nobody and for no reason."""
    change, before = pair
    return (
        before is not None
        and change.kind == UPDATED
        and not change.person
        and not change.reason
        and _said(change) == _said(before)
    )


def _said(change: FindingEventRow) -> tuple[str, str, float]:
    return change.severity, change.summary, change.confidence


def _entry(run: Sequence[Changed], asked: PageRequest) -> Element:
    if len(run) == 1:
        return _change(*run[0], asked)
    (latest, _), (first, _) = run[0], run[-1]
    hue, drawn = look(_VERBS[UPDATED][1])
    key = f"{first.journal_seq}.{first.event_no}"
    lasts = small[when(first.at, asked.now), " to ", when(latest.at, asked.now)]
    return li(class_=hue, data_key=f"run {key}")[
        span(".dot")[icon(drawn)],
        div[
            fold(
                fragment[strong[f"Seen again {len(run):,} times"], " ", lasts],
                ol(".changes")[(_change(*each, asked) for each in run)],
                key=f"seen {key}",
            )
        ],
    ]


RAISED: Final = "finding_raised"

UPDATED: Final = "finding_updated"

_VERBS: Final[Mapping[str, tuple[str, str]]] = {
    RAISED: ("Raised", "active"),
    UPDATED: ("Seen again", "active"),
    "finding_cleared": ("Cleared", "cleared"),
    "finding_expired": ("Expired", "expired"),
    "finding_escalated": ("Escalated", "critical"),
    "finding_acknowledged": ("Acknowledged", "delivered"),
    "finding_noted": ("Note", "low"),
}
"""Kind of a change → its word, and the state that it looks like."""


def _change(change: FindingEventRow, before: FindingEventRow | None, asked: PageRequest) -> Element:
    verb, state = _VERBS.get(change.kind, (change.kind.replace("_", " "), "ok"))
    hue, drawn = look(state)
    return li(class_=hue, data_key=f"{change.journal_seq}.{change.event_no}")[
        span(".dot")[icon(drawn)],
        div[
            p[
                strong[verb],
                change.person and f" by {change.person}",
                fragment[" by episode ", episode_link(change.episode_id)]
                if change.episode_id
                else None,
                " ",
                small[when(change.at, asked.now)],
            ],
            change.reason and p[change.reason],
            _differences(change, before),
        ],
    ]


def _differences(change: FindingEventRow, before: FindingEventRow | None) -> Node:
    """Return what a change has changed: words that were, and words that are."""
    if before is None:
        return p(".muted")[pill(change.severity), " ", change.summary]
    said = []
    if before.severity != change.severity:
        said.append(p[pill(before.severity), " → ", pill(change.severity)])
    if before.summary != change.summary:
        said.append(p(".diff")[del_[before.summary], " ", ins[change.summary]])
    if before.confidence != change.confidence:
        said.append(p(".muted")[f"confidence {before.confidence:.0%} → {change.confidence:.0%}"])
    return said


def actions(finding: FindingRecord, asked: PageRequest) -> Node:
    """Return what people may say about a finding."""
    if not may_order(asked):
        return None
    key = {"key": finding.finding_key}
    is_active = finding.status == ACTIVE
    return card(
        "What do you say?",
        is_active
        and finding.acknowledged_by is None
        and act("findings.acknowledge", "Acknowledge", key, why_field(), is_primary=True),
        is_active and act("findings.clear", "Clear", key, why_field()),
        act("findings.note", "Add note", key, field("text", "Note", required=True)),
        is_padded=True,
    )


def about(finding: FindingRecord, asked: PageRequest) -> Element:
    """Return where a finding comes from."""
    actor = place("actors", finding.actor_id)
    return card(
        "About it",
        sheet(
            [
                ("Class", finding.class_),
                ("Subject", " ".join(filter(None, (finding.subject_kind, finding.subject_id)))),
                ("Actor", a(href=actor)[f"{finding.actor_id} / {finding.expectation_id}"]),
                ("Raised by", episode_link(finding.raised_by_episode_id)),
                ("Explained by", _key(finding.caused_by_key)),
                ("Escalated to", finding.escalated_to and pill(finding.escalated_to)),
                ("Acknowledged", _by(finding.acknowledged_by, finding.acknowledged_at, asked)),
                ("Cleared", _by(finding.cleared_by, finding.cleared_at, asked)),
                ("Cleared by", episode_link(finding.cleared_by_episode_id)),
                ("Why", finding.cleared_reason),
                ("Lives for", f"{finding.ttl_s:,.0f} s" if finding.ttl_s else None),
            ]
        ),
        fold("Evidence", value(finding.evidence_refs), key="evidence")
        if finding.evidence_refs
        else None,
        copied("As a command", shlex.join(["vigil", "findings", "show", finding.finding_key])),
        copied("As JSON", as_json(finding)),
    )


def _key(key: str | None) -> Node:
    return key and a(href=place("findings", key))[key]


def _by(person: str | None, at: object, asked: PageRequest) -> Node:
    return person and fragment[f"by {person}, ", when(at, asked.now)]


SCREEN: Final = Screen(
    path="/findings", draw=draw, section="/findings", filters=FILTERS, has_past=True
)

ONE: Final = Screen(path="/findings/{key:path}", draw=draw_one, section="/findings", has_past=True)
