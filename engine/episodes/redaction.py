"""What people may see of a step, by the log strategy of its episode. Pure.

| strategy | tool call | synthesis | observation | other steps |
| --- | --- | --- | --- | --- |
| `none`, `summary_only` | nothing | nothing | nothing | nothing |
| `timeline` | result in short | prompt in short, answer cut | in short | all |
| `full_debug` | all | all, answer cut | all | all |

An agent, and its requests to a model, are shown as syntheses are. A replay gets every result as it
was. What a tool redacts itself comes before. Errors are shown in any case. A result in the object
store is shown by its size, and by its digest where all of it may be seen. What people have granted
beyond the budget is shown under every strategy, as the budget is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from streams.json import NOTHING, raw, unraw
from streams.model.events import StepKind, StepRecorded
from streams.model.triggers import LogStrategy

REDACTED: Final = "[redacted]"
"""What stands in the place of a prompt."""

PROMPT_KEYS: Final = frozenset(
    # guard: prompt-messages-redacted
    {
        "system_prompt",
        "system",
        "user",
        "user_message",
        "prompt",
        "message",
        "messages",
        "content",
    }
)
"""Keys whose values are prompts, at any depth of what a synthesizer is asked."""

ASKING: Final = frozenset({StepKind.SYNTHESIS, StepKind.MODEL_REQUEST, StepKind.AGENT})
"""Steps that ask a model."""

SHORT_BYTES_MAX: Final = 200
"""Longest text of a result in short, in bytes of UTF-8."""

ANSWER_BYTES_MAX: Final[Mapping[LogStrategy, int]] = {
    LogStrategy.TIMELINE: 2_000,
    LogStrategy.FULL_DEBUG: 50_000,
}
"""Most text of a synthesizer's answer, all its parts together, in bytes of UTF-8."""


def as_shown(step: StepRecorded, strategy: LogStrategy) -> StepRecorded:
    """Return `step` without what people may not see under `strategy`; its result is kept."""
    if step.prompt is not None and strategy is not LogStrategy.FULL_DEBUG:
        # guard: kept-prompt-redacted
        step = replace(step, prompt=replace(step.prompt, messages=None))
    match strategy:
        case _ if step.is_grant:  # guard: grant-is-shown
            return step
        case LogStrategy.NONE | LogStrategy.SUMMARY_ONLY:
            # guard: quiet-strategy-hides-results
            is_hidden = step.result != NOTHING or step.stored is not None
            return replace(step, args=NOTHING, result_shown=NOTHING, is_hidden=is_hidden)
        case LogStrategy.TIMELINE if step.kind in {StepKind.TOOL_CALL, StepKind.OBSERVATION}:
            shown = _showing(replace(step, args=NOTHING), in_short(_shown(step)))
            # Its digest would tell more than a result in short does.
            # guard: short-has-no-digest
            is_hidden = step.stored is not None and shown.result_shown == NOTHING
            return replace(shown, is_hidden=step.is_hidden or is_hidden)
        case LogStrategy.TIMELINE | LogStrategy.FULL_DEBUG if step.kind in ASKING:
            asked = asked_as_shown(unraw(step.args), strategy)
            args = in_short(asked) if strategy is LogStrategy.TIMELINE else asked
            answer = cut(_shown(step), most_bytes=ANSWER_BYTES_MAX[strategy])
            return _showing(replace(step, args=raw(args)), answer)
        case _:
            return step


def answer_bytes_max(strategy: LogStrategy) -> int:
    """Return how much of a model's answer people may see, in bytes of UTF-8; 0: nothing."""
    return ANSWER_BYTES_MAX.get(strategy, 0)


def in_short(value: object) -> object:
    """Return `value` with short texts, and with counts and keys in the place of what is inside."""
    if isinstance(value, dict):
        return {key: _digest(each) for key, each in value.items()}
    return _digest(value)


def asked_as_shown(value: object, strategy: LogStrategy) -> object:
    """Return what a synthesizer was asked as people may see it under `strategy`, not in short."""
    # guard: prompts-redacted-unless-full
    return value if strategy is LogStrategy.FULL_DEBUG else without_prompts(value)


def without_prompts(value: object) -> object:
    """Return what a synthesizer was asked without its prompts; a text alone or in a list is one."""
    if isinstance(value, list):
        return [without_prompts(each) for each in value]  # guard: prompt-list-redacted
    return REDACTED if isinstance(value, str) else _redacted(value)


def cut(value: object, *, most_bytes: int) -> object:
    """Return `value`, whose texts have at most `most_bytes` in all: the first ones stay whole."""
    left = most_bytes

    def kept(each: object) -> object:
        nonlocal left
        if isinstance(each, dict):
            return {key: kept(inner) for key, inner in each.items()}
        if isinstance(each, list):
            return [kept(inner) for inner in each]
        if not isinstance(each, str):
            return each
        text = first_bytes(each, left)
        left -= len(text.encode())
        return text if text == each else f"{text}…"

    return kept(value)


def _shown(step: StepRecorded) -> object:
    if step.is_hidden:  # guard: hidden-not-shown-short
        return None
    return unraw(step.result if step.result_shown == NOTHING else step.result_shown)


def _showing(step: StepRecorded, value: object) -> StepRecorded:
    shown = raw(value)
    return replace(step, result_shown=NOTHING if shown == step.result else shown)


def _digest(value: object) -> object:
    match value:
        case dict():
            return sorted(value)
        case list():
            return f"{len(value):,} items"
        case str():
            text = first_bytes(value, SHORT_BYTES_MAX)
            return text if text == value else f"{text}…"
        case _:
            return value


def _redacted(value: object) -> object:
    if isinstance(value, list):
        return [_redacted(each) for each in value]
    if not isinstance(value, dict):
        return value
    # guard: prompt-redacted
    return {key: REDACTED if key in PROMPT_KEYS else _redacted(each) for key, each in value.items()}


def first_bytes(text: str, most_bytes: int) -> str:
    """Return the beginning of `text` that has at most `most_bytes` of UTF-8."""
    return text.encode()[:most_bytes].decode(errors="ignore")
