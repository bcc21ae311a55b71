"""Run an episode again from one of its steps: what went before is kept, the rest happens anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from htpy import Element, div, label, small, textarea
from htpy import input as entry

from engine.people.identity import Role
from projections.records import EpisodeRecord, StepRow
from vigil.client import Client
from vigil.web.drawing.parts import act, card, choice, field, place, sheet, short
from vigil.web.screen import Drawn, PageRequest, Screen


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read an episode and its steps, and draw the form."""
    episode = await client.episodes.get(asked.words["id"])
    steps = await client.episodes.steps(episode.episode_id)
    return Drawn(
        title=f"Fork {episode.actor_id} / {episode.expectation_id}",
        parts={
            "form": forking(episode, steps.items, asked.filter("step")),
            "about": explained(episode),
        },
        side=("about",),
        up=(place("episodes", episode.episode_id), f"Episode {short(episode.episode_id)}"),
    )


def forking(episode: EpisodeRecord, steps: Sequence[StepRow], at: str | None) -> Element:
    """Return the form."""
    payload = json.dumps(episode.trigger_ref.get("payload") or {}, indent=2, ensure_ascii=False)
    options = [("0", "None of them: from the beginning")]
    options += [
        (
            str(each.step_no),
            f"After step {each.step_no}: {each.kind} {each.tool_name or ''}".strip(),
        )
        for each in steps
    ]
    return card(
        "What is different",
        act(
            "episodes.fork",
            "Fork",
            {"id": episode.episode_id, "back": "/episodes/{episode_id}"},
            choice("at", "Keep its steps", options, at or "0"),
            label[
                "Payload of its trigger, as JSON",
                textarea(name="payload:json", rows="6", spellcheck="false")[payload],
            ],
            field("reason", "Reason", placeholder="Kept in the journal"),
            label(".check")[
                entry(type="checkbox", name="dry_run", value="true", checked=True),
                "Dry run: nothing changes outside, and findings are kept apart",
            ],
            is_primary=True,
            is_tall=True,
        ),
    )


def explained(episode: EpisodeRecord) -> Element:
    """Return what a fork is."""
    return card(
        "A fork",
        div(".pad")[
            "The new episode begins with the recorded steps of this one, up to the one you choose.",
            small[" Nothing of them is done again. Afterwards both can be compared."],
        ],
        sheet([("Original", str(episode.episode_id)), ("Its status", episode.status)]),
    )


SCREEN: Final = Screen(
    path="/episodes/{id}/fork",
    draw=draw,
    section="/episodes",
    role=Role.OPERATOR,
    is_live=False,
    orders=True,
    filters=("step",),
)
