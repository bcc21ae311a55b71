"""A request for approval: what is to be done, who may decide, and what a change would make of it.

What is decided on is named by the hash of its plan, so it cannot change under anybody's finger. The
page shows it once, and is not drawn anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import ndiff
from typing import Final

import msgspec
from htpy import (
    Element,
    Node,
    a,
    button,
    code,
    del_,
    div,
    fragment,
    ins,
    label,
    p,
    pre,
    small,
    textarea,
)
from htpy import form as form_
from htpy import input as entry

from engine.people.identity import Role
from projections.records import EpisodeRecord
from streams.json import unraw
from vigil.asking.approval_requests import ApprovalRequest, changed
from vigil.client import Client
from vigil.client.types import ApprovalTarget
from vigil.errors import AlreadyDecided, Mistake
from vigil.web.drawing.parts import act, card, field, place, sheet, value, when
from vigil.web.screen import Drawn, PageRequest, Screen

CHANGES: Final = "changes."
"""What the name of a field for a changed part of a plan begins with."""

WHOLE: Final = "changes"
"""The name of the field for a changed plan that is no object."""

REASON: Final = "reason"

ROWS_MAX: Final = 16
"""Most lines of a field for a part of a plan; longer ones are scrolled."""


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read a request, and draw it; with changes, also what they make of the plan."""
    target = target_of(asked)
    try:
        request = await client.approvals.read(target)
    except AlreadyDecided as error:
        return decided(error, target, asked)
    episode = await client.episodes.get(target.id) if target.kind == "episode" else None
    plan = unraw(request.plan)
    patch = patch_of(plan, asked.filters)
    edited = None if patch is msgspec.UNSET else changed(plan, patch, target)
    may = asked.role.includes(Role.APPROVER)
    return Drawn(
        title=request.approval.summary or f"Approval of {target}",
        parts={
            "plan": shown_plan(plan),
            "diff": difference(plan, edited) if edited is not None else None,
            "decide": deciding(asked, request, plan, patch) if may else _not_for_you(),
            "about": about(request, target, asked, episode),
        },
        side=("decide", "about"),
        up=("/inbox", "Inbox"),
    )


def decided(end: AlreadyDecided, target: ApprovalTarget, asked: PageRequest) -> Drawn:
    """Return a page that says how a request was decided, for who comes too late."""
    told = card(
        "Nothing is to be decided here any more",
        sheet(
            [
                ("Outcome", end.outcome),
                ("By", end.by),
                ("When", when(end.at, asked.now)),
                ("Why", end.reason),
                ("Asked", _source(target)),
            ]
        ),
    )
    return Drawn(title="Already decided", parts={"decided": told}, up=("/inbox", "Inbox"))


def target_of(asked: PageRequest) -> ApprovalTarget:
    """Return what an address says that is decided on."""
    words = asked.words
    match words.get("kind", "step"):
        case "episode":
            return ApprovalTarget("episode", words["id"])
        case "output":
            return ApprovalTarget("output", words["id"])
        case "step":
            return ApprovalTarget("step", words["id"], words["step"])
        case other:
            raise Mistake(f"{other!r} asks for no approval")


def patch_of(plan: object, filters: Mapping[str, str]) -> object:
    """Return what a form has changed of a plan, as a JSON merge patch; unset: it says nothing.

    Raises:
        Mistake: a field has no JSON.
    """
    if WHOLE in filters:
        return patch_between(plan, _value(WHOLE, filters[WHOLE]))
    parts = {
        name.removeprefix(CHANGES): _value(name, text)
        for name, text in filters.items()
        if name.startswith(CHANGES)
    }
    if not parts or not isinstance(plan, dict):
        return msgspec.UNSET
    kept = {name: part for name, part in {**plan, **parts}.items() if part is not None}
    return patch_between(plan, kept)


def patch_between(before: object, after: object) -> object:
    """Return the JSON merge patch (RFC 7396) that makes `after` of `before`; unset: they are equal.

    An object that stays one is patched; a list is replaced.
    """
    if before == after:
        return msgspec.UNSET
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    removed = dict.fromkeys(before.keys() - after.keys())
    changes = {
        name: patch_between(before[name], part) if name in before else part
        for name, part in after.items()
    }
    return {
        **removed,
        **{name: each for name, each in changes.items() if each is not msgspec.UNSET},
    }


def _value(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        said = name.removeprefix(CHANGES)
        raise Mistake(f"{said}: {text!r:.80} is no JSON; a text stands in quotes") from error


def shown_plan(plan: object) -> Element:
    """Return what is to be done."""
    return card("What is to be done", div(".pad")[value(plan)])


def difference(plan: object, edited: object) -> Element:
    """Return what changes make of a plan, line by line."""
    return card(
        "With your changes",
        pre(".diff.pad", tabindex="0")[code[_lines(plan, edited)]],
        beside="Nothing is decided yet",
    )


def _lines(before: object, after: object) -> Iterator[Node]:
    for line in ndiff(_text(before).splitlines(), _text(after).splitlines()):
        mark, text = line[:1], f"{line}\n"
        if mark == "+":
            yield ins[text]
        elif mark == "-":
            yield del_[text]
        elif mark != "?":
            yield text


def _text(of: object) -> str:
    return json.dumps(of, indent=2, ensure_ascii=False)


def deciding(asked: PageRequest, request: ApprovalRequest, plan: object, patch: object) -> Node:
    """Return how to decide: as it is, with changes, or not at all."""
    approval, has_changes = request.approval, patch is not msgspec.UNSET
    target = target_of(asked)
    named = {
        "kind": target.kind,
        "id": target.id,
        "step": target.step or None,
        "plan_hash": approval.plan_hash,
        "back": "/inbox",
    }
    reason = asked.filter(REASON)
    with_changes = {f"{WHOLE}:json": json.dumps(patch)} if has_changes else {}
    return fragment[
        card(
            "Approve",
            act(
                "approvals.approve",
                "Approve with these changes" if has_changes else "Approve",
                {**named, **with_changes},
                field(REASON, "Reason", reason, placeholder="Kept in the journal"),
                is_primary=True,
                id="approve",
            ),
            is_padded=True,
        ),
        card(
            "Deny",
            act(
                "approvals.deny",
                "Deny",
                named,
                field(REASON, "Reason", reason, placeholder="What should be different?"),
                is_danger=True,
                id="deny",
            ),
            is_padded=True,
        ),
        approval.editable and _changing(asked, plan, patch),
    ]


def _changing(asked: PageRequest, plan: object, patch: object) -> Element:
    """Return a form for changes, which shows what they make of the plan before anything is done."""
    edited = changed(plan, patch, target_of(asked)) if patch is not msgspec.UNSET else plan
    fields = (
        [(f"{CHANGES}{name}", name, part) for name, part in edited.items()]
        if isinstance(edited, dict)
        else [(WHOLE, "Plan", edited)]
    )
    return card(
        "Change it first",
        form_(".form", method="post", action=asked.path)[
            (
                label[name, textarea(name=key, rows=_rows(part), spellcheck="false")[_text(part)]]
                for key, name, part in fields
            ),
            small["Each is JSON: a text stands in quotes, null leaves a part out."],
            entry(type="hidden", name=REASON, value=asked.filter(REASON) or ""),
            div(".buttons")[button(type="submit")["See what becomes of it"]],
        ],
    )


def _rows(part: object) -> str:
    """Return how high a field is, in lines, so that all of what it has is seen at once."""
    return str(min(max(_text(part).count("\n") + 1, 2), ROWS_MAX))


def _not_for_you() -> Element:
    return card("Decide", p(".pad")["Approvers decide. You may look."])


def about(
    request: ApprovalRequest,
    target: ApprovalTarget,
    asked: PageRequest,
    episode: EpisodeRecord | None,
) -> Element:
    """Return who may decide, until when, and what happens if nobody does."""
    approval = request.approval
    return card(
        "About it",
        sheet(
            [
                ("Asked", when(request.asked_at, asked.now)),
                ("Until", when(approval.expires_at, asked.now)),
                ("Then", f"{approval.on_expiry.value} it" if approval.expires_at else None),
                ("May decide", ", ".join(approval.approvers) or "anybody"),
                ("May not decide", approval.barred or None),
                ("So far", request.progress or None),
                ("Plan hash", code(".id")[approval.plan_hash[:16]]),
                *(_of(episode) if episode is not None else ()),
                ("Asks", _source(target)),
            ]
        ),
    )


def _of(episode: EpisodeRecord) -> list[tuple[str, Node]]:
    """Return who asks, about what, and where to see what it has found out."""
    subject = " ".join(each for each in (episode.subject_kind, episode.subject_id) if each)
    timeline = a(href=place("episodes", episode.episode_id))["what it did so far"]
    return [
        ("For", f"{episode.actor_id} / {episode.expectation_id}"),
        ("About", subject or None),
        ("Before", timeline),
    ]


def _source(target: ApprovalTarget) -> Node:
    folder = {"episode": "episodes", "output": "outputs", "step": "workflows"}[target.kind]
    return a(href=place(folder, target.id))[str(target)]


STEP: Final = Screen(
    path="/inbox/step/{id}/{step}", draw=draw, section="/inbox", is_live=False, is_form=True
)
SCREEN: Final = Screen(
    path="/inbox/{kind}/{id:path}", draw=draw, section="/inbox", is_live=False, is_form=True
)
