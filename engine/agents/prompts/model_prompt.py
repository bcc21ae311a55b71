"""`ModelPrompt`: what a model was asked, computed from the journal of its episode.

Each request keeps what of the conversation is new, and refers to what the journal has anyway: the
answers of the model, and whole results of tools. So the conversation is told by going through the
requests of one run of an agent, in order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from engine.agents.prompts.agent_version import AgentVersion
from engine.errors import PromptNotKept
from engine.secrets import HIDDEN
from streams.json import NOTHING, JsonObject, unraw
from streams.model.events import (
    AGAIN,
    EpisodeOpened,
    EpisodeStarted,
    KeptJson,
    KeptPrompt,
    LogEvent,
    StepKind,
    StepRecorded,
    StoredResult,
)
from streams.model.triggers import LogStrategy

RECORDED: Final = "recorded"
"""The key under which a kept message, or a part of one, names the place that has it."""

WITHIN: Final = "within"
"""The key of what of that record is meant; without it, all of it is."""

FetchStored: TypeAlias = Callable[[StoredResult], Awaitable[msgspec.Raw]]
"""Returns what is in the object store."""


class ModelPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a model was asked, as far as people may see it."""

    episode_id: str
    step_no: int
    requests: tuple[int, ...]
    """The numbers of all steps that have asked a model, the oldest first."""
    path: str
    """Where the agent asked: `1.m2.1` is the second request of the agent of call 1."""
    agent: str
    """The agent and its version: `triage:5c1f…`."""
    model: str
    settings: JsonObject
    """Without headers and keys."""
    instructions: str
    tools: tuple[JsonObject, ...]
    """What the model may call, as the agent's library describes it; the agent's types of output
    are the last ones, where they are tools."""
    output: JsonObject | None
    """What an answer must look like, where that is asked for otherwise."""
    messages: tuple[JsonObject, ...]
    """The conversation so far, the oldest first, as the agent's library encodes it, without what is
    empty."""


async def model_prompt(
    events: Collection[LogEvent], step_no: int | None, fetch: FetchStored
) -> ModelPrompt:
    """Return what a model was asked in a step; `PromptNotKept` says why nobody knows that.

    Args:
        events: of the journal of the episode, the oldest first.
        step_no: the number of the step; None: of the newest that has asked a model.
        fetch: returns what the journal has put into the object store.
    """
    requests = tuple(_requests_in(events))
    if step_no is None:
        if not requests:
            raise PromptNotKept("the episode has asked no model")
        step_no = requests[-1]
    opened, steps = _steps_up_to(events, step_no)
    if not steps or steps[-1].step_no != step_no:
        raise PromptNotKept(f"there is no step {step_no}")
    step = steps[-1]
    _check_shown(opened, step)
    assert opened is not None, "its strategy was looked at"
    found = await _json(step, _prompt_of(step).agent, "the agent", fetch)
    version = msgspec.json.decode(found, type=AgentVersion)
    parameters = version.parameters
    return ModelPrompt(
        episode_id=opened.episode_id,
        step_no=step.step_no,
        requests=requests,
        path=step.path,
        agent=step.agent,
        model=version.model,
        settings=version.settings,
        instructions=version.all_instructions,
        tools=tuple(
            _given(each)
            for kind in ("function_tools", "native_tools", "output_tools")
            for each in parameters.get(kind, ())
        ),
        output=parameters.get("output_object"),
        messages=tuple(await _conversation(steps, fetch)),
    )


def _requests_in(events: Iterable[LogEvent]) -> list[int]:
    """Return the numbers of the steps that have asked a model since the episode was begun anew."""
    _, steps = _steps_up_to(events, None)
    return [each.step_no for each in steps if each.kind is StepKind.MODEL_REQUEST]


def _steps_up_to(
    events: Iterable[LogEvent], step_no: int | None
) -> tuple[EpisodeOpened | None, Sequence[StepRecorded]]:
    """Return the opening of an episode, and its steps up to `step_no` since it was begun anew.

    None: all of them.
    """
    opened: EpisodeOpened | None = None
    steps: list[StepRecorded] = []
    for event in events:
        match event:
            case EpisodeOpened():
                opened = event
            case EpisodeStarted(fresh=True):
                steps = []
            case StepRecorded():
                steps.append(event)
                if event.step_no == step_no:
                    break
            case _:
                pass
    return opened, steps


def _check_shown(opened: EpisodeOpened | None, step: StepRecorded) -> None:
    strategy = LogStrategy.FULL_DEBUG if opened is None else opened.log_strategy
    if strategy is not LogStrategy.FULL_DEBUG:  # guard: prompt-of-full-debug-only
        raise PromptNotKept(
            f"its log strategy is {strategy}: what models are asked is kept under full_debug alone"
        )
    if step.kind is not StepKind.MODEL_REQUEST:
        raise PromptNotKept(f"step {step.step_no} is {step.kind}, not {StepKind.MODEL_REQUEST}")


async def _conversation(steps: Sequence[StepRecorded], fetch: FetchStored) -> list[JsonObject]:
    """Return what was said in the run of an agent before its last step of `steps`, which asks."""
    asks = steps[-1]
    run = _run_of(asks.path)
    by_place = _by_place(steps, run)
    said: list[JsonObject] = []
    for step in steps:
        if step.kind is not StepKind.MODEL_REQUEST or _run_of(step.path) != run:
            continue
        kept = _prompt_of(step)
        if kept.after > len(said):
            raise PromptNotKept(f"step {step.step_no}: the journal lacks a request before it")
        new = unraw(await _json(step, kept.messages, "the messages", fetch))
        said = [*said[: kept.after], *new]
    return [await _whole(each, by_place, fetch) for each in said]


def _run_of(path: str) -> str:
    """Return the path of the agent that a request at `path` is of."""
    return path.rpartition(".m")[0]


def _by_place(steps: Iterable[StepRecorded], run: str) -> Mapping[str, StepRecorded]:
    """Return the newest attempt at each call of an agent, by its place in it: `m2.1`, `t2-1.1`."""
    found: dict[str, StepRecorded] = {}
    for step in steps:
        first = step.path.partition(AGAIN)[0]
        if first.startswith(f"{run}.") and not _is_pause(step):
            found[first.removeprefix(f"{run}.")] = step
    return found


def _is_pause(step: StepRecorded) -> bool:
    _, again, number = step.path.rpartition(AGAIN)
    return bool(again) and int(number) % 2 == 1


async def _whole(
    message: JsonObject, by_place: Mapping[str, StepRecorded], fetch: FetchStored
) -> JsonObject:
    """Return a message with what it refers to."""
    if RECORDED in message:
        answer = await _record(by_place, message[RECORDED], fetch)
        parts = answer.get("parts", ()) if isinstance(answer, Mapping) else ()
        return {"kind": message["kind"], "parts": [*parts]}
    parts = [await _whole_part(part, by_place, fetch) for part in message.get("parts", ())]
    return {**message, "parts": parts}


async def _whole_part(
    part: JsonObject, by_place: Mapping[str, StepRecorded], fetch: FetchStored
) -> JsonObject:
    if RECORDED not in part:
        return part
    found = await _record(by_place, part[RECORDED], fetch)
    within = part.get(WITHIN)
    if within is not None and isinstance(found, Mapping):
        found = found.get(within)
    rest = {name: each for name, each in part.items() if name not in {RECORDED, WITHIN}}
    return {**rest, "content": found}


async def _record(by_place: Mapping[str, StepRecorded], place: str, fetch: FetchStored) -> object:
    """Return the result of a call, as people may see it."""
    step = by_place.get(place)
    if step is None:
        raise PromptNotKept(f"the journal has no {place}")
    if step.result_shown != NOTHING:
        return unraw(step.result_shown)
    if step.is_hidden:  # guard: prompt-hides-results
        return HIDDEN
    return unraw(step.result if step.stored is None else await fetch(step.stored))


def _prompt_of(step: StepRecorded) -> KeptPrompt:
    if step.prompt is None:
        told = f"nothing is kept of step {step.step_no}: another version of Vigil has recorded it"
        raise PromptNotKept(told)
    return step.prompt


async def _json(
    step: StepRecorded, kept: KeptJson | None, what: str, fetch: FetchStored
) -> msgspec.Raw:
    """Return what is kept of a step; `PromptNotKept` says why it is not."""
    if kept is None:
        told = f"step {step.step_no}: {what} had more than is kept, or what JSON cannot express"
        raise PromptNotKept(told)
    if kept.was_away:
        told = f"step {step.step_no}: {what} could not be kept: the object store was away"
        raise PromptNotKept(told)
    return kept.json if kept.stored is None else await fetch(kept.stored)


def _given(fields: JsonObject) -> JsonObject:
    """Return what is said of a tool."""
    return {name: each for name, each in fields.items() if each not in (None, [], False)}
