"""What instances of workflows and the episodes of their steps are called. Pure.

As everywhere, ids come from causes: beginning an instance twice, or an attempt at a step, is a
version conflict. The dedupe key of an attempt's episode names the attempt:

    workflow:<instance>/<step>/<item>/<attempt>         to do it
    compensation:<instance>/<step>/<item>/<attempt>     to undo it
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from engine import dedupe
from streams.json import raw
from streams.triggers import Mode, Overrides
from streams.workflows import Task

_INSTANCE: Final = "workflow:"
"""Stands where an episode's id has the actor. No actor's id has a colon, so no episode has the id
of an instance."""


def instance_id(*, stack: str, workflow: str, dedupe_key: str, generation: int = 0) -> str:
    """Return the id of the instance that a cause begins: a UUIDv8, as an episode's."""
    return dedupe.episode_id(
        stack=stack,
        actor=_INSTANCE,
        expectation=workflow,
        dedupe_key=dedupe_key,
        generation=generation,
    )


def attempt_key(
    instance: str, step: str, item: int, attempt: int, *, is_compensation: bool = False
) -> str:
    """Return the dedupe key of what is opened for one attempt at an item of a step."""
    what = "compensation" if is_compensation else "workflow"
    return f"{what}:{instance}/{step}/{item}/{attempt}"


def attempt_id(*, stack: str, task: Task | None, workflow: str, key: str) -> str:
    """Return the id of what is opened for one attempt: an episode, or an instance of `workflow`."""
    if task is None:
        return instance_id(stack=stack, workflow=workflow, dedupe_key=key)
    return dedupe.episode_id(
        stack=stack, actor=task.actor_id, expectation=task.expectation_id, dedupe_key=key
    )


def reuse_key(
    *, stack: str, task: Task, given: msgspec.Raw, mode: Mode, overrides: Overrides | None
) -> str:
    """Return what two episodes have in common whose results may stand for each other.

    Args:
        stack: its name, which says the environment, too.
        task: what they do; another `spec_rev` or revision of the actor is another task.
        given: their input, a JSON object; in which order its keys are is all the same.
        mode: a dry run never stands for one that is meant.
        overrides: of dry runs.
    """
    sorted_input = raw(msgspec.json.decode(given))
    parts = [
        stack,
        task.actor_id,
        task.expectation_id,
        task.spec_rev,
        task.revision,
        mode.value,
        overrides if mode is Mode.DRY_RUN else None,
        sorted_input,
    ]
    return hashlib.blake2b(raw(parts), digest_size=16).hexdigest()
