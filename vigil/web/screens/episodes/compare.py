"""Two episodes side by side, from the first step in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from htpy import Element, Node, a, button, div, form, p, strong, table, tbody, td, th, thead, tr

from vigil.asking.episode_diff import EpisodeDiff, ValueDifference
from vigil.client import Client
from vigil.web.drawing.parts import (
    card,
    count,
    field,
    fold,
    lasted,
    many,
    money,
    nothing,
    pill,
    place,
    short,
    value,
)
from vigil.web.screen import Drawn, PageRequest, Screen


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Compare the two episodes of the address; without them, draw the form."""
    left, right = asked.filter("left"), asked.filter("right")
    if left is None or right is None:
        parts: dict[str, Node] = {"form": choosing(asked)}
    else:
        found = await client.episodes.diff(left, right)
        parts = {
            "form": choosing(asked),
            "both": both(found),
            "step": first_step(found),
            "rest": rest(found),
        }
    return Drawn(title="Compare two episodes", parts=parts)


def choosing(asked: PageRequest) -> Element:
    """Return the form that says which."""
    return form(".row", method="get", action=asked.path)[
        field("left", "One", asked.filter("left"), placeholder="Id of an episode", required=True),
        field("right", "Other", asked.filter("right"), placeholder="Id of another", required=True),
        button(type="submit")["Compare"],
    ]


def both(found: EpisodeDiff) -> Element:
    """Return the two episodes, and what each cost."""
    rows: list[tuple[str, Node, Node]] = [
        (name, draw_(found.left), draw_(found.right)) for name, draw_ in _FACTS
    ]
    return card(
        "Both",
        table(".wraps")[
            thead[tr[th(scope="col")[""], th(scope="col")["One"], th(scope="col")["Other"]]],
            tbody[(tr[th(scope="row")[name], td[one], td[other]] for name, one, other in rows)],
        ],
        beside=found.relation or None,
    )


_FACTS: Final = (
    ("Episode", lambda of: a(href=place("episodes", of.episode_id))[short(of.episode_id)]),
    ("What", lambda of: f"{of.actor_id} / {of.expectation_id}"),
    ("Status", lambda of: pill(of.status)),
    ("Mode", lambda of: of.mode),
    ("Turns", lambda of: count(of.turns)),
    ("Requests to models", lambda of: count(of.requests or None)),
    (
        "Tools",
        lambda of: ", ".join(
            name if number == 1 else f"{name} ×{number}"  # noqa: RUF001 - times
            for name, number in of.tools.items()
        ),
    ),
    ("Tokens", lambda of: count(of.tokens)),
    ("Cost", lambda of: money(of.usd)),
    ("Took", lambda of: lasted(of.ms)),
)


def first_step(found: EpisodeDiff) -> Element:
    """Return the first step that differs."""
    step = found.step
    if step is None:
        return card("Steps", nothing(f"Both have the same {many(found.common_steps, 'step')}."))
    only = {"left": "only the first one has come so far", "right": "only the other has come so far"}
    return card(
        f"The first step that differs: {step.step}",
        p(".pad")[strong[only[step.only_in]]] if step.only_in else None,
        differences(step.values),
        beside=f"{many(found.common_steps, 'step')} before it the same",
    )


def rest(found: EpisodeDiff) -> list[Node]:
    """Return what else differs."""
    named = (
        ("How they began", found.begins),
        ("Findings", found.findings),
        ("Outputs", found.outputs),
        ("How they ended", found.ends),
    )
    return [card(title, differences(values)) for title, values in named if values]


def differences(values: Sequence[ValueDifference]) -> Element:
    """Return values beside each other."""
    return div(".sides")[
        (
            fold(
                each.name.replace("_", " "),
                div(".two")[div[value(each.left)], div[value(each.right)]],
                key=each.name,
                is_open=True,
            )
            for each in values
        )
    ]


SCREEN: Final = Screen(
    path="/compare", draw=draw, section="/episodes", is_live=False, filters=("left", "right")
)
