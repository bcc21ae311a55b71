"""One episode: how it came to be, each of its steps in time, what it costs and has come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
from htpy import (
    Element,
    Node,
    a,
    code,
    div,
    fragment,
    label,
    li,
    ol,
    p,
    small,
    span,
    strong,
    textarea,
    ul,
)
from msgspec.structs import replace

from engine.people.identity import Role
from projections.records import EpisodeRecord, EpisodeSummary, TimelineEntry, record_of
from vigil.client import Client
from vigil.printing.columns import error_of
from vigil.printing.tables import as_json
from vigil.web.drawing.charts import scale, track
from vigil.web.drawing.icons import icon
from vigil.web.drawing.parts import (
    act,
    card,
    copied,
    count,
    episode_link,
    exact,
    facts,
    field,
    fold,
    lasted,
    look,
    money,
    nothing,
    pill,
    place,
    sheet,
    short,
    titled,
    value,
    when,
)
from vigil.web.screen import Drawn, PageRequest, Screen, address
from vigil.web.screens.episodes.as_test import RepeatedOutput, as_test, why_not
from vigil.web.screens.episodes.episodes import waiting_words
from vigil.web.screens.episodes.waiting import (
    ActorQueue,
    because,
    hold_of,
    read_queues,
    with_position,
)

ENTRIES_MAX: Final = 1_000
"""Most of a timeline on one page; what is longer has a link to the rest."""

OPEN: Final = frozenset({"queued", "running", "blocked"})
"""The states of an episode that goes on."""

UNSAID: Final = frozenset({"trigger", "budget", "mode"})
"""What the timeline need not repeat of how the episode was opened."""


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read an episode and its timeline, and draw them."""
    row = await client.episodes.describe(asked.words["id"], at=asked.at)
    waited = row["waits_for"]
    ref = waited["ref"] if isinstance(waited, dict) else None
    unknown = {name: 0 for name in COUNTED if row[name] is None}
    episode = replace(record_of({**row, **unknown}, EpisodeRecord), blocked_ref=ref or None)
    entries = await client.episodes.timeline(
        episode.episode_id, at=asked.at, after=asked.filter("after"), limit=ENTRIES_MAX
    )
    return Drawn(
        title=f"{episode.actor_id} / {episode.expectation_id}",
        beside=fragment[
            pill(episode.status, waiting_words(episode)),
            code(".id")[str(episode.episode_id)],
            a(href=place("episodes", episode.episode_id, "conversation"))["Conversation"]
            if episode.agent and asked.role.includes(Role.OPERATOR)
            else None,
            a(
                href=address(
                    "/compare", left=str(episode.forked_from), right=str(episode.episode_id)
                )
            )["Compare with the original"]
            if episode.forked_from
            else None,
        ],
        parts={
            "facts": figures(row, episode, entries.items, asked.now),
            "timeline": timeline(entries.items, asked, is_whole=entries.next is None),
            "waits": waits(row["waits_for"], episode, asked) or await _held(client, episode, asked),
            "actions": actions(episode, asked),
            "came": came_to(row, asked),
            "about": about(episode, asked),
            "copies": await copies(client, episode, row, asked),
        },
        side=("waits", "actions", "came", "about", "copies"),
        up=("/episodes", "Episodes"),
    )


COUNTED: Final = ("turns_used", "tokens_used", "cost_usd", "wall_used_ms", "takeovers")
"""What nobody knows any more of an episode of the past that had not ended: it is left out."""


async def _held(client: Client, episode: EpisodeRecord, asked: PageRequest) -> Node:
    """Return what holds an episode that waits for its turn; of the past, nobody knows it."""
    if asked.at is not None:
        return None
    return held(await with_position(client, episode), await read_queues(client, [episode]))


def figures(
    row: Mapping[str, object],
    episode: EpisodeRecord,
    entries: Sequence[TimelineEntry],
    now: datetime,
) -> Element:
    """Return the numbers of an episode; of `row`, those that nobody may know any more."""
    begun = episode.started_at or episode.queued_at
    spent_ms = episode.wall_used_ms or None
    since = (now - begun).total_seconds() * 1_000
    is_open = episode.status in OPEN
    requests = sum(entry.kind == "model_request" for entry in entries)
    return facts(
        [
            ("Since", lasted(since)) if is_open else ("Ran", _ran(lasted(spent_ms))),
            ("Turns", count(row["turns_used"])),
            ("Requests to models", count(requests or None)),
            ("Tokens", count(episode.tokens_used or None)),
            ("Cost", money(episode.cost_usd) or (episode.tokens_used > 0 and "unknown")),
            ("Attempts", count(episode.attempts)),
            ("Takeovers", count(episode.takeovers or None)),
        ]
    )


def _ran(says: str) -> Node:
    return says and span(title="Without what it waited for people, events or its turn")[says]


class _Span(NamedTuple):
    """An entry of a timeline, and from when to when it lasted, in seconds from the first."""

    entry: TimelineEntry
    begin_s: float
    end_s: float


def spans(entries: Sequence[TimelineEntry], now: datetime) -> list[_Span]:
    """Return when each entry began and ended: a wait ends with what comes after it."""
    if not entries:
        return []
    first = entries[0].at
    ends = [after.at for _, after in pairwise(entries)]
    found = []
    for entry, following in zip(entries, [*ends, now], strict=True):
        end_s = (entry.at - first).total_seconds()
        took_s = (entry.cost_ms or 0) / 1_000 if entry.step_no is not None else 0.0
        if entry.kind in {"approval_requested", "wait_started"}:
            took_s, end_s = (
                (following - entry.at).total_seconds(),
                (following - first).total_seconds(),
            )
        found.append(_Span(entry, max(end_s - took_s, 0.0), max(end_s, 0.0)))
    return found


def timeline(entries: Sequence[TimelineEntry], asked: PageRequest, *, is_whole: bool) -> Element:
    """Return what an episode did, each with a bar where it lies in time."""
    if not entries:
        return card("Timeline", nothing("Nothing has happened yet."))
    drawn = spans(entries, asked.now)
    whole_s = max(each.end_s for each in drawn)
    last = entries[-1]
    return card(
        "Timeline",
        ol(".tl")[
            li[span(".lab")["Step"], scale(whole_s), span(".num")["Took"]],
            (_line(each, whole_s, asked) for each in drawn),
        ],
        None
        if is_whole
        else p(".pad")[a(href=asked.link(after=str(last.position)))["What comes after it"]],
        beside=f"{len(entries):,} entries",
    )


def _line(each: _Span, whole_s: float, asked: PageRequest) -> Element:
    entry = each.entry
    hue, drawn = look(_state_of(entry))
    said = {name: part for name, part in entry.details.items() if name not in UNSAID}
    head = span(".lab", title=f"{entry.says} ({exact(entry.at)})")[icon(drawn), span[entry.says]]
    return li(class_=hue, data_key=f"{entry.kind}.{entry.position}")[
        fold(head, _details(entry, said, asked), key=f"d{entry.position}"),
        track(each.begin_s, each.end_s, of_s=whole_s),
        span(".num")[lasted((each.end_s - each.begin_s) * 1_000 or None)],
    ]


def _details(entry: TimelineEntry, said: Mapping[str, object], asked: PageRequest) -> Element:
    return div(".more")[
        small[" · ".join(each for each in (exact(entry.at), entry.person, entry.node) if each)],
        entry.error_detail and fragment[strong["error"], value(entry.error_detail)],
        (fragment[strong[name.replace("_", " ")], value(part)] for name, part in said.items()),
        entry.kind == "model_request"
        and entry.step_no is not None
        and p[
            a(href=place("episodes", entry.episode_id, "prompts", entry.step_no))[
                "The exact prompt of this request"
            ]
        ],
        entry.step_no is not None
        and asked.at is None
        and p[
            a(href=address(place("episodes", entry.episode_id, "fork"), step=str(entry.step_no)))[
                icon("fork"), f"Fork from step {entry.step_no}"
            ]
        ],
    ]


def _state_of(entry: TimelineEntry) -> str:
    if entry.error_class:
        return "failed"
    states = {
        "episode_opened": "queued",
        "episode_started": "running",
        "approval_requested": "blocked",
        "wait_started": "waiting",
        "raised": "active",
        "updated": "active",
        "would_raise": "skipped",
        "would_send": "skipped",
    }
    if entry.kind == "episode_finished":
        return str(entry.details.get("status", "done"))
    return states.get(entry.kind, "done")


def actions(episode: EpisodeRecord, asked: PageRequest) -> Node:
    """Return what people may order of it."""
    if not asked.role.includes(Role.OPERATOR):
        return None
    id_ = str(episode.episode_id)
    if episode.status in OPEN:
        return card(
            "Stop it",
            act(
                "episodes.cancel",
                "Cancel",
                {"id": id_},
                field("reason", "Why", placeholder="Kept in the journal"),
                is_danger=True,
            ),
            is_padded=True,
        )
    return card(
        "Run it again",
        p(".muted")["A fork keeps the steps up to one of them, and goes on from there."],
        p[a(".btn", href=address(place("episodes", id_, "fork")))[icon("fork"), "Fork"]],
        is_padded=True,
    )


def held(episode: EpisodeSummary, queues: Mapping[str, ActorQueue]) -> Node:
    """Return what holds an episode that waits for its turn, or for nobody."""
    hold = hold_of(episode, queues)
    return hold and div(".note")[because(hold)]


def waits(block: object, episode: EpisodeRecord, asked: PageRequest) -> Node:
    """Return what an episode waits for, and how to answer it."""
    if not isinstance(block, Mapping):
        return None
    return div(".note")[
        strong[block["summary"] or f"Waits for {block['ref'] or 'its time'}"],
        small[
            "since ",
            when(block["blocked_at"], asked.now),
            block["expires_at"] and fragment[", until ", when(block["expires_at"], asked.now)],
        ],
        block["reason"] == "approval"
        and asked.at is None
        and a(".btn.primary", href=place("inbox", "episode", episode.episode_id))["Decide"],
        bool(block["ref"]) and asked.role.includes(Role.OPERATOR) and answering(block, episode),
    ]


def answering(block: Mapping[str, object], episode: EpisodeRecord) -> Element:
    """Return a form that gives the result of what an episode waits for."""
    return act(
        "signals.resolve",
        "Answer",
        {"ref": block["ref"], "episode_id": episode.episode_id},
        label["Result, as JSON", textarea(name="result:json", rows="2")["null"]],
        is_tall=True,
    )


def came_to(row: Mapping[str, object], asked: PageRequest) -> Node:
    """Return the findings, outputs and children of an episode."""
    return fragment[
        _listed("Findings", _findings(_rows(row["findings"]), asked)),
        _listed("Outputs", _outputs(_rows(row["outputs"]))),
        _listed("Children", _children(_rows(row["children"]))),
    ]


def _rows(of: object) -> Sequence[Mapping[str, object]]:
    return of if isinstance(of, list) else []


def _listed(title: str, items: list[Node]) -> Node:
    return bool(items) and card(title, ul(".list")[(li[each] for each in items)])


def _findings(rows: Iterable[Mapping[str, object]], asked: PageRequest) -> list[Node]:
    return [
        [
            div[
                titled(place("findings", row["finding_key"]), str(row["summary"])),
                small[f"{row['kind']} · ", when(row["at"], asked.now)],
            ],
            pill(row["severity"]),
        ]
        for row in rows
    ]


def _outputs(rows: Iterable[Mapping[str, object]]) -> list[Node]:
    return [
        [
            div[
                titled(
                    place("outputs", row["output_key"]), str(row["summary"] or row["output_key"])
                )
            ],
            pill(row.get("outcome") or row.get("status") or "proposed"),
        ]
        for row in rows
    ]


def _children(rows: Iterable[Mapping[str, object]]) -> list[Node]:
    return [
        [
            div[
                titled(
                    place("episodes", row["episode_id"]),
                    f"{row['actor_id']} / {row['expectation_id']}",
                ),
                small[short(row["episode_id"])],
            ],
            pill(row["status"]),
        ]
        for row in rows
    ]


def about(episode: EpisodeRecord, asked: PageRequest) -> Element:
    """Return where an episode comes from, and under which terms it runs."""
    trigger = episode.trigger_ref
    row = {"error_class": episode.error_class, "error_detail": episode.error_detail}
    return card(
        "About it",
        sheet(
            [
                ("Summary", episode.summary),
                ("Error", error_of(row)),
                ("Subject", " ".join(filter(None, (episode.subject_kind, episode.subject_id)))),
                (
                    "Opened",
                    fragment[
                        when(episode.queued_at, asked.now),
                        episode.opened_by and f" by {episode.opened_by}",
                    ],
                ),
                ("Trigger", _trigger(episode.trigger_type, trigger)),
                ("Actor", a(href=place("actors", episode.actor_id))[episode.actor_id]),
                ("Node", episode.node),
                ("Mode", episode.mode if episode.mode != "live" else None),
                ("Agent", episode.agent),
                ("Model", episode.model),
                ("Confidence", episode.confidence is not None and f"{episode.confidence:.0%}"),
                ("Parent", episode_link(episode.parent_id)),
                ("Forked from", episode_link(episode.forked_from)),
                ("Workflow", _instance(episode) if episode.workflow_instance_id else None),
                ("Key", episode.dedupe_key),
                (
                    "Definition",
                    episode.definition_revision and f"revision {episode.definition_revision}",
                ),
            ]
        ),
        fold("Trigger, as it was", value(trigger)),
        fold("Budget", value(episode.budget)),
        fold("Labels", value(episode.metadata)) if episode.metadata else None,
    )


async def copies(
    client: Client, episode: EpisodeRecord, row: Mapping[str, object], asked: PageRequest
) -> Element:
    """Return an episode as what people paste elsewhere: a command, JSON, and a test."""
    then = f" --at {asked.filter('at')}" if asked.at else ""
    test: Node = p(".pad.muted")["A test is made of an episode as it is now."]
    if asked.at is None:
        steps = (await client.episodes.steps(episode.episode_id)).items
        asked_for = await client.approvals.decided(episode_ids=[episode.episode_id], reverse=True)
        decisions = [each for each in asked_for if each.kind == "episode"]
        found = {
            str(each["finding_key"]): str(each["severity"])
            for each in _rows(row["findings"])
            if each["status"] == "active"
        }
        outputs = msgspec.convert(_rows(row["outputs"]), list[RepeatedOutput])
        reason = why_not(episode, steps, decisions, outputs)
        test = (
            p(".pad.muted")["No test can be made of it. ", reason]
            if reason
            else copied(
                "As a test of vigil.testing",
                as_test(episode, steps, decisions=decisions, findings=found, outputs=outputs),
            )
        )
    return card(
        "Copy it",
        copied("As a command", f"vigil episodes show {episode.episode_id}{then}"),
        copied("As JSON", as_json(row)),
        test,
    )


def _trigger(kind: str, ref: Mapping[str, object]) -> Node:
    if kind == "event":
        event = str(ref.get("event_id", ""))
        return [
            f"event {ref.get('event_type', '')} ",
            event and a(href=place("events", event))["why"],
        ]
    said = {"schedule": ref.get("schedule"), "manual": ref.get("requested_by")}
    return f"{kind} {said.get(kind) or ''}"


def _instance(episode: EpisodeRecord) -> Element:
    here = place("workflows", episode.workflow_instance_id)
    return a(href=here)[f"{episode.workflow_id}, step {episode.workflow_step_id}"]


SCREEN: Final = Screen(
    path="/episodes/{id}", draw=draw, section="/episodes", filters=("after",), has_past=True
)
