"""How people read what a model was asked."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.agents.prompts.model_prompt import ModelPrompt
from vigil.commands.episodes.prompt import lines_of, others_than

READ = {
    "name": "read_metric",
    "description": "Read a metric.",
    "parameters_json_schema": {"type": "object", "properties": {"name": {}, "unit": {}}},
}


def part(kind, content=None, **fields):
    return {"part_kind": kind, **({} if content is None else {"content": content}), **fields}


ASKED = ModelPrompt(
    episode_id="e1",
    step_no=3,
    requests=(1, 3),
    path="1.m2.1",
    agent="triage:5c1f",
    model="openai:gpt-5",
    settings={"max_tokens": 500},
    instructions="Be brief.\nBe kind.",
    tools=(READ, {"kind": "web_search"}),
    output={"json_schema": {"type": "object"}},
    messages=(
        {"kind": "request", "parts": [part("user-prompt", "Why?\nTell me.")]},
        {
            "kind": "response",
            "parts": [
                part("text", "Let me see."),
                part("tool-call", tool_name="read_metric", args={"name": "load"}),
            ],
        },
        {
            "kind": "request",
            "parts": [
                part("tool-return", {"load": 0.97}, tool_name="read_metric"),
                part("instruction-delta", "Be quick."),
            ],
        },
    ),
)


def test_a_prompt_is_read_from_the_top():
    assert [*lines_of(ASKED)] == [
        "triage:5c1f asks openai:gpt-5 at 1.m2.1",
        "settings: max_tokens=500",
        "",
        "instructions",
        "  Be brief.",
        "  Be kind.",
        "",
        "tools",
        "  read_metric(name, unit): Read a metric.",
        "  web_search()",
        "",
        "output",
        '  {"json_schema":{"type":"object"}}',
        "",
        "messages",
        "  user: Why?",
        "    Tell me.",
        "  model: Let me see.",
        '  model calls read_metric({"name":"load"})',
        '  tool read_metric: {"load":0.97}',
        "  instruction-delta: Be quick.",
    ]


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ((2, 4, 9), "the newest of 3 requests; earlier ones: --step 2, 4"),
        (
            tuple(range(1, 13)),
            "the newest of 12 requests; earlier ones: --step …, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11",
        ),
    ],
)
def test_earlier_requests_are_named(requests, said):
    assert others_than(replace(ASKED, requests=requests)) == f"\n{said}"
