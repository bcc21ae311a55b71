"""What a model has said, in short, for people. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping


def answer_text(answer: object) -> str:
    """Return the text of a recorded answer of a model, and the calls that it asks for."""
    parts = answer.get("parts", ()) if isinstance(answer, Mapping) else ()
    told = [_part(each) for each in parts if isinstance(each, Mapping)]
    return ", ".join(filter(None, told)) or "nothing"


def _part(part: Mapping[str, object]) -> str:
    match part.get("part_kind"):
        case "text":
            return repr(part.get("content", ""))
        case "tool-call":
            args = part.get("args") or {}
            given = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
            return f"{part.get('tool_name')}({given})"
        case _:
            return ""
