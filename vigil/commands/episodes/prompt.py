"""`vigil episodes prompt`: what an agent asked its model in a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Option

from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call, named
from vigil.printing import tables
from vigil.printing.output import say_aside

if TYPE_CHECKING:
    from engine.agents.prompts.model_prompt import ModelPrompt

app = typer.Typer()

OTHERS_MAX: Final = 10
"""How many other requests are named, at most."""

SPEAKERS: Final = {
    "system-prompt": "system",
    "user-prompt": "user",
    "text": "model",
    "thinking": "model thinks",
    "tool-call": "model calls",
    "tool-return": "tool",
    "retry-prompt": "retry",
}
"""Kind of a part of a message → who says it, as people read it."""


@app.command()
def prompt(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    step_no: Annotated[
        int | None,
        Option(
            "--step",
            min=1,
            help="Its number, as `vigil episodes steps` shows it; by default the newest request.",
        ),
    ] = None,
    is_json: options.IsJson = False,
) -> None:
    """Print what an agent asked its model in a step: instructions, tools and the conversation."""

    async def read(client: Client) -> ModelPrompt:
        wanted = await named(client, episode_id, is_latest=is_latest)
        return await client.episodes.prompt(wanted, step_no)

    found = call(ctx, read)
    if is_json:
        print(tables.as_json(found))
    else:
        for line in lines_of(found):
            print(tables.printable(line))
    if step_no is None and len(found.requests) > 1:
        say_aside(others_than(found))


def others_than(newest: ModelPrompt) -> str:
    """Return that there are other requests, and the steps of the last ones."""
    *others, _ = newest.requests
    left_out = "…, " if len(others) > OTHERS_MAX else ""
    shown = left_out + ", ".join(map(str, others[-OTHERS_MAX:]))
    return f"\nthe newest of {len(newest.requests)} requests; earlier ones: --step {shown}"


def lines_of(asked: ModelPrompt) -> Iterator[str]:
    """Yield what a model was asked, for people."""
    yield f"{asked.agent} asks {asked.model} at {asked.path}"
    if asked.settings:
        yield f"settings: {tables.as_words(asked.settings)}"
    if asked.instructions:
        yield from ("", "instructions", *_indented(asked.instructions))
    if asked.tools:
        yield from ("", "tools", *(f"  {_tool(each)}" for each in asked.tools))
    if asked.output:
        yield from ("", "output", *_indented(tables.as_json_line(asked.output)))
    yield from ("", "messages", *_messages(asked.messages))


def _messages(messages: Sequence[Mapping[str, object]]) -> Iterator[str]:
    for message in messages:
        parts = message.get("parts")
        for part in parts if isinstance(parts, Iterable) else ():
            yield from _part(part)


def _part(part: Mapping[str, object]) -> Iterator[str]:
    kind = str(part.get("part_kind", ""))
    speaker = SPEAKERS.get(kind, kind)
    if kind == "tool-call":
        yield f"  {speaker} {part.get('tool_name')}({_said(part.get('args') or {})})"
        return
    name = part.get("tool_name")
    first, *more = _said(part.get("content")).split("\n")
    yield f"  {f'{speaker} {name}' if name else speaker}: {first}"
    yield from (f"    {line}" for line in more)


def _tool(tool: Mapping[str, object]) -> str:
    schema = tool.get("parameters_json_schema")
    named = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    head = f"{tool.get('name', tool.get('kind'))}({', '.join(named)})"
    return f"{head}: {tool['description']}" if tool.get("description") else head


def _said(value: object) -> str:
    return value if isinstance(value, str) else tables.as_json_line(value)


def _indented(text: str) -> Iterator[str]:
    return (f"  {line}" for line in text.split("\n"))
