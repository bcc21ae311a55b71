"""Of which kinds of subjects a stack encrypts data: a setting of the stack, for all its nodes."""

from __future__ import annotations

from collections.abc import Sequence

from streams.errors import BadName, Incompatible
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.messages import api
from streams.jetstream.ports.configs import (
    SEALED_KINDS,
    bucket_stream,
    keys_bucket,
    kinds_of,
    sealed_kinds_in,
)
from streams.jetstream.setup import setup
from streams.subjects import Stack


async def read_kinds(
    url: str, *, stack: Stack, settings: LinkSettings | None = None
) -> Sequence[str]:
    """Return the kinds of subjects whose data `stack` encrypts. Raises as `connect` does."""
    async with Link(url, settings or LinkSettings()) as link:
        _, configs = await setup.prepare(link, stack, creates=False, is_reading=True)
        return kinds_of(stack, configs)


async def add_kinds(
    url: str, *, stack: Stack, kinds: Sequence[str], settings: LinkSettings | None = None
) -> Sequence[str]:
    """Have `stack` encrypt data of more kinds of subjects from now on; return all of them.

    Nodes do so once they have been started again. Raises as `connect` does.
    """
    for kind in kinds:
        if not kind or not kind.isprintable() or " " in kind:
            raise BadName(f"kind of a subject: {kind!r}")
    async with Link(url, settings or LinkSettings()) as link:
        stack, _ = await setup.prepare(link, stack, creates=False)
        await setup.ensure(link, keys_bucket(stack, link.settings))
        name = bucket_stream(stack.registry_bucket())
        config = await setup.require_config(link, name)
        all_kinds = tuple(dict.fromkeys((*sealed_kinds_in(config), *kinds)))
        metadata = {**(config.get("metadata") or {}), SEALED_KINDS: " ".join(all_kinds)}
        try:
            await api.call(link, f"STREAM.UPDATE.{name}", {**config, "metadata": metadata})
        except api.RequestRefused as error:
            raise Incompatible(
                f"the server refuses to change {name}: {error}",
                remedy="Allow this user to update that stream.",
            ) from error
        return all_kinds
