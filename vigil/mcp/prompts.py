"""Prompts that a person picks: what to look at, in which order, and what not to do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from mcp_types import GetPromptResult, Prompt, PromptArgument, PromptMessage, TextContent

from engine.agents.data import ABOUT_DATA, data
from vigil.errors import Mistake, NotFound, hint

ARGUMENT_CHARS_MAX: Final = 4_000
"""Longest argument of a prompt."""


class PromptText(NamedTuple):
    """A prompt, and what it wants to know."""

    about: str
    wants: Mapping[str, str]
    """Argument → what it is. Each is required."""
    text: str
    """With `{argument}` where each stands, marked as data."""


PROMPTS: Final[Mapping[str, PromptText]] = {
    "investigate": PromptText(
        "Find out why a finding is there.",
        {"finding": "The key of the finding."},
        "Find out why the finding {finding} is there. Read it with `finding`: its history and the"
        " chain of what caused it. Read the episode that raised it with `episode` and `timeline`,"
        " and other findings about the same subject with `find`. Say what is known, what is only"
        " likely, and which step you would take next. Change nothing.",
    ),
    "why_not": PromptText(
        "Find out why an event fired nothing.",
        {"event": "The id of the event."},
        "Find out why the event {event} fired nothing. Ask `explain_not_fired` first; look at the"
        " event with `event` if a filter refused it, and at `health` if nobody listens. Say which"
        " rule decided, what the event was compared with, and what would have to be different.",
    ),
    "post_mortem": PromptText(
        "Write a post-mortem of what happened around a group of findings.",
        {"group": "The keys of the findings, or what they have in common."},
        "Write a post-mortem of {group}. Collect the findings with `find` and `finding`, and the"
        " episodes with `episodes` and `timeline`. Write what happened in order with times, what"
        " it did to whom, the cause and what points to it, what people approved (`timeline` names"
        " them), what it cost (`costs`), and what would keep it from happening again. Keep what"
        " the records say apart from what you conclude.",
    ),
    "write_expectation": PromptText(
        "Draft an expectation for a wish in plain words.",
        {"wish": "What should be true, and what is to be done if it is not."},
        "Draft a definition of an actor with an expectation for this wish: {wish}. Read"
        " `vigil://schema/definition` first, and look with `episodes` and `find` at what is there"
        " already. Check each draft with `check_definition` until nothing is wrong with it. Show"
        " the definition and what it would change, and tell the person to apply it with"
        " `vigil apply`. You cannot apply it.",
    ),
    "review_week": PromptText(
        "Review what the stack did in the last seven days.",
        {},
        "Review the last seven days of this stack. Use `health`, `episodes` with hours=168 for"
        " those that failed, `find`, `approvals` and `costs` with hours=168. Say what failed most"
        " often and why, what waited longest for people, what cost most, and three things to"
        " change, each with what points to it.",
    ),
}
"""Name → prompt."""


def listed() -> list[Prompt]:
    """Return all prompts, as the protocol lists them."""
    return [
        Prompt(
            name=name,
            description=each.about,
            arguments=[
                PromptArgument(name=wanted, description=about, required=True)
                for wanted, about in each.wants.items()
            ],
        )
        for name, each in PROMPTS.items()
    ]


def made(name: str, arguments: Mapping[str, str]) -> GetPromptResult:
    """Return a prompt with its arguments, which are marked as data.

    Raises:
        NotFound: there is no such prompt.
        Mistake: an argument is missing, unknown or too long.
    """
    prompt = PROMPTS.get(name)
    if prompt is None:
        raise NotFound(f"there is no prompt {name!r}", remedy=hint(name, PROMPTS))
    if arguments.keys() != prompt.wants.keys():
        wanted = ", ".join(prompt.wants) or "no arguments"
        raise Mistake(f"prompt {name!r} wants {wanted}")
    for each, value in arguments.items():
        if len(value) > ARGUMENT_CHARS_MAX:
            raise Mistake(f"{each}: over {ARGUMENT_CHARS_MAX:,} characters")
    marked = {each: data(value, name=each) for each, value in arguments.items()}
    text = prompt.text.format_map(marked)  # guard: prompt-arguments-are-data
    if marked:
        text = f"{text}\n\n{ABOUT_DATA}"
    message = PromptMessage(role="user", content=TextContent(type="text", text=text))
    return GetPromptResult(description=prompt.about, messages=[message])
