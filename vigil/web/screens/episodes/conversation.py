"""What an agent and its model said to each other, turn by turn, with what each turn cost.

The exact prompt of any turn is there for who may see it: instructions, tools and settings as the
model got them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from htpy import Element, Node, a, div, li, nav, ol, p, small, span, strong

from engine.agents.prompts.model_prompt import ModelPrompt
from engine.people.identity import Role
from projections.records import StepRow
from vigil.client import Client
from vigil.web.drawing.icons import icon
from vigil.web.drawing.parts import card, count, facts, fold, money, place, sheet, short, value
from vigil.web.screen import Drawn, PageRequest, Screen

_SPEAKERS: Final[Mapping[str, str]] = {
    "system-prompt": "Instructions",
    "user-prompt": "Prompt",
    "tool-return": "Result of",
    "retry-prompt": "Refused",
    "text": "Model",
    "thinking": "Thought",
    "tool-call": "Call of",
}
"""Kind of a part of a message → who says it, as the agent's library names it."""

_OF_MODEL: Final = frozenset({"text", "thinking", "tool-call"})


async def draw(client: Client, asked: PageRequest) -> Drawn:
    """Read what the model was asked in one turn, or in the newest, and draw the conversation."""
    id_, step = asked.words["id"], asked.words.get("step")
    prompt = await client.episodes.prompt(id_, int(step) if step else None)
    steps = await client.episodes.steps(prompt.episode_id)
    turns = [each for each in steps if each.step_no in prompt.requests]
    return Drawn(
        title=f"Conversation of {prompt.agent.partition(':')[0] or 'a model'}",
        parts={
            "figures": figures(turns),
            "turns": turn_links(prompt, turns),
            "conversation": conversation(prompt, turns),
            "prompt": exact(prompt),
        },
        side=("turns", "prompt"),
        up=(place("episodes", prompt.episode_id), f"Episode {short(prompt.episode_id)}"),
    )


def figures(turns: Sequence[StepRow]) -> Element:
    """Return what all turns came to."""
    asked_tokens = sum(each.input_tokens or 0 for each in turns)
    cached = sum(each.cached_tokens or 0 for each in turns)
    share = f"{cached / asked_tokens:.0%}" if asked_tokens and cached else None
    return facts(
        [
            ("Turns", count(len(turns))),
            ("Tokens asked", count(asked_tokens)),
            ("From the cache", share),
            ("Tokens answered", count(sum(each.output_tokens or 0 for each in turns))),
            ("Cost", money(sum(each.cost_usd or 0 for each in turns))),
        ]
    )


def turn_links(prompt: ModelPrompt, turns: Sequence[StepRow]) -> Element:
    """Return a link to each turn."""
    return card(
        "Turns",
        nav(".list", aria_label="Turns")[
            ol(".list")[
                (
                    li[
                        div[
                            a(
                                href=place("episodes", prompt.episode_id, "prompts", turn.step_no),
                                aria_current=turn.step_no == prompt.step_no and "true",
                            )[f"Turn {number}, step {turn.step_no}"],
                            small[_spent(turn)],
                        ]
                    ]
                    for number, turn in enumerate(turns, 1)
                )
            ]
        ],
    )


def _spent(turn: StepRow) -> str:
    said = (turn.model, f"{turn.cost_tokens or 0:,} tokens", money(turn.cost_usd))
    return " · ".join(each for each in said if each)


def conversation(prompt: ModelPrompt, turns: Sequence[StepRow]) -> Element:
    """Return all that was said up to a turn, and the model's answer to it."""
    answer = next((each.result for each in turns if each.step_no == prompt.step_no), None)
    messages = [*prompt.messages, *([answer] if isinstance(answer, dict) else [])]
    return card(
        "What was said",
        ol(".said-list")[(_part(each) for message in messages for each in _parts(message))],
        beside=f"{len(messages)} messages",
    )


def _parts(message: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    parts = message.get("parts")
    for each in parts if isinstance(parts, list) else []:
        if isinstance(each, dict):
            yield each


def _part(part: Mapping[str, object]) -> Element:
    kind = str(part.get("part_kind", ""))
    who = _SPEAKERS.get(kind, kind.replace("-", " "))
    tool = str(part.get("tool_name") or "")
    content = part.get("args") if kind == "tool-call" else part.get("content")
    is_long = kind in {"system-prompt", "tool-return", "thinking"}
    head = span(".speaker")[icon("play" if tool else "info"), f"{who} {tool}".strip()]
    return li(class_=["said-part", {"of-model": kind in _OF_MODEL}])[
        fold(head, value(content), is_open=not is_long)
        if tool or is_long
        else [head, _text(content)]
    ]


def _text(content: object) -> Node:
    return p(".prose")[content] if isinstance(content, str) else value(content)


def exact(prompt: ModelPrompt) -> Element:
    """Return the exact prompt of a turn."""
    return card(
        f"Exact prompt of step {prompt.step_no}",
        sheet([("Agent", prompt.agent), ("Model", prompt.model), ("Path", prompt.path)]),
        fold("Instructions", value(prompt.instructions)) if prompt.instructions else None,
        fold(f"Tools ({len(prompt.tools)})", [_tool(each) for each in prompt.tools]),
        fold("Settings", value(prompt.settings)) if prompt.settings else None,
        fold("Output", value(prompt.output)) if prompt.output else None,
        fold("All of it, as JSON", value(list(prompt.messages))),
    )


def _tool(tool: Mapping[str, object]) -> Node:
    return [
        strong[str(tool.get("name", ""))],
        p[str(tool.get("description", ""))],
        value(tool.get("parameters_json_schema")),
    ]


SCREEN: Final = Screen(
    path="/episodes/{id}/conversation", draw=draw, section="/episodes", role=Role.OPERATOR
)
PROMPT: Final = Screen(
    path="/episodes/{id}/prompts/{step:int}",
    draw=draw,
    section="/episodes",
    role=Role.OPERATOR,
    is_live=False,
)
