"""An actor whose agent finds out what fills a folder, and mends it once people agree.

The agent has three tools. `largest` reads. `compress` changes a file, so people are asked before
each call. `ask_reader` runs an agent of its own, which reads what the first one need not know.

    vigil demo --agent                                        a scripted model, without a key
    OPENAI_API_KEY=… vigil demo --agent --model openai:gpt-5  a real one
"""

from __future__ import annotations

import gzip
import os
from collections import deque
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent

from vigil import (
    Actor,
    App,
    Budget,
    ConvergeResult,
    FunctionContext,
    OutputView,
    Price,
    ToolFailed,
    Trigger,
    event,
    propose_output,
    raise_finding,
    tool,
)
from vigil.agents import ABOUT_DATA, data, toolset

SCRIPTED: Final = "openai:scripted"
OFFLINE: Final = "test"
"""A model of pydantic-ai that answers without a network, by calling each tool."""

MODEL: Final = os.environ.get("DEMO_MODEL", OFFLINE)

FOLDER: Final = Path(os.environ.get("DEMO_FOLDER", "files"))
"""What is looked into. The tools see nothing outside of it."""

FILES_MAX: Final = 10
LINES_MAX: Final = 40


# What the agents can do.


@tool
def largest() -> list[dict[str, Any]]:
    """List the largest files of the folder, in bytes, the largest first."""
    files = [each for each in FOLDER.rglob("*") if each.is_file()]
    sizes = [(each.stat().st_size, str(each.relative_to(FOLDER))) for each in files]
    return [{"file": file, "bytes": size} for size, file in sorted(sizes, reverse=True)[:FILES_MAX]]


@tool
def last_lines(file: str) -> list[str]:
    """Read the last lines of a log."""
    with _within(file).open(encoding="utf-8", errors="replace") as lines:
        return list(deque(map(str.rstrip, lines), maxlen=LINES_MAX))


@tool(risk="change", idempotent=True)
def compress(file: str) -> str:
    """Compress a file with gzip, which takes the place of the file."""
    # A node may have died in the middle of this: what it has done is not done again.
    plain = _within(file)
    packed = plain.with_name(f"{plain.name}.gz")
    if plain.exists():  # guard: compressed-once
        partial = plain.with_name(f"{plain.name}.partial")
        partial.write_bytes(gzip.compress(plain.read_bytes()))
        partial.replace(packed)
        plain.unlink()
    return f"{packed.name} has {packed.stat().st_size:,} bytes"


def _within(file: str) -> Path:
    """Return the path of a file in the folder: a model may ask for any."""
    path = (FOLDER / file).resolve()
    if not path.is_relative_to(FOLDER.resolve()):  # guard: demo-tools-stay-inside
        raise ToolFailed("not_here", f"{file} is not in the folder")
    return path


# Who asks for it.

reader = Agent(
    MODEL,
    name="reader",
    instructions="Read the log, and answer in one sentence.",
    toolsets=[toolset(last_lines)],
    model_settings={"max_tokens": 1_000},
)


async def ask_reader(ctx: FunctionContext, file: str, question: str) -> str:
    """Have somebody read a log, and answer a question about it."""
    return (await ctx.agent(reader, f"{question} The log is {file}.")).output


class Diagnosis(BaseModel):
    """What the agent has found out."""

    cause: Literal["log", "cache", "other"]
    summary: str = Field(description="One sentence for people.")
    is_mended: bool
    advice: str = Field(description="What keeps it from happening again.")


investigator = Agent(
    MODEL,
    name="investigator",
    output_type=Diagnosis,
    instructions=[
        "Find out what fills the folder, and why. Compress a file if that mends it.",
        ABOUT_DATA,
    ],
    toolsets=[toolset(largest, ask_reader, compress, requires_approval=[compress])],
    model_settings={"max_tokens": 1_000},
)

# When, and what comes of it.

folders = Actor("folders", domain="hosts", tools=[largest, last_lines, compress])


@folders.expectation(
    on=event("folder.filling"),
    subject_key="folder",
    overlap="skip",
    budget=Budget(turns=40, tokens=100_000, usd="0.50"),
)
async def folder_has_room(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Find out what fills a folder, raise that as a finding, and leave a note."""
    folder = trigger.payload["folder"]
    prompt = f"Why does this folder fill up? {data(trigger.payload, name='event')}"
    found = (await ctx.agent(investigator, prompt)).output
    finding = raise_finding(
        f"folder:{folder}",
        class_=f"filled_by_{found.cause}",
        severity="low" if found.is_mended else "high",
        subject=("folder", folder),
        summary=found.summary,
        evidence={"advice": found.advice},
    )
    note = propose_output(
        "notes", {"title": found.summary, "text": found.advice}, dedupe_key=ctx.episode_id
    )
    return ConvergeResult(summary=found.summary, findings=[finding], outputs=[note])


async def write_note(output: OutputView) -> str:
    """Write a note for whoever comes next; the same one again changes nothing."""
    said: Any = output.payload
    file = FOLDER.with_name("notes") / f"{output.episode_id}.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"# {said['title']}\n\n{said['text']}\n", encoding="utf-8")
    return file.name


app = App(
    actors=[folders],
    outputs={"notes": write_note},
    prices={
        SCRIPTED: Price(input_per_million=1, output_per_million=8),
        OFFLINE: Price(input_per_million=0, output_per_million=0),
    },
)
