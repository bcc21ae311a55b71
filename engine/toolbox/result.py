"""What a tool of ours brings back, as JSON that a step can keep. Pure."""

from __future__ import annotations

import msgspec

from engine.app.tools import RESULT_BYTES_MAX, TOO_LARGE, ToolFailed
from streams.json import JsonObject, raw


def checked_result(result: JsonObject) -> dict[str, object]:
    """Return `result` as plain JSON values, or raise `ToolFailed` if it is too large to be kept."""
    plain: dict[str, object] = msgspec.to_builtins(result, enc_hook=str)
    size_bytes = len(bytes(raw(plain)))
    if size_bytes > RESULT_BYTES_MAX:
        detail = f"{size_bytes:,} bytes, the limit is {RESULT_BYTES_MAX:,}; ask for less"
        raise ToolFailed(TOO_LARGE, detail)
    return plain
