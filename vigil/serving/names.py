"""What a node is called: the same after a restart, and never the same for two at a time.

VIGIL_NODE, else the app's node_name(), else <host>-<six hex digits>: those stand for the stack, the
folder and a place there, which a lock in `.vigil/nodes` reserves while its process lives.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from engine.app.app import App
from streams.errors import BadName
from streams.subjects import Stack
from streams.tokens import name as checked_name
from vigil import runfile
from vigil.errors import Mistake, Trouble
from vigil.settings import Config, host_name

PLACES_MAX: Final = 64
"""Most nodes without a name of their own that one stack has in one folder."""

DIGEST_BYTES: Final = 3

FOLDER: Final = "nodes"


@contextmanager
def named(config: Config, app: App) -> Iterator[Config]:
    """Yield `config` with the name of the node of `app` that runs meanwhile.

    Raises `Mistake` if the app gives an impossible one, `Trouble` if too many unnamed nodes run.
    """
    if chosen := _chosen(config, app):
        yield replace(config, node=chosen)
    else:
        with _placed(config) as name:
            yield replace(config, node=name or config.node, is_node_reserved=name is not None)


@contextmanager
def named_each(configs: Sequence[Config], app: App) -> Iterator[list[Config]]:
    """Yield `configs`, each of another stack, with names for nodes of `app`, no two the same.

    A place gives each stack a name of its own; any other name is followed by the stack's. Raises as
    `named` does.
    """
    chosen = _chosen(configs[0], app)
    with ExitStack() as held:
        places = [None if chosen else held.enter_context(_placed(each)) for each in configs]
        yield [
            replace(each, node=place or _of_stack(chosen or each.node, each.stack))
            for each, place in zip(configs, places, strict=True)
        ]


def _of_stack(name: str, stack: Stack) -> str:
    try:
        return checked_name(f"{name}-{stack.name}", of="node")
    except BadName as error:
        raise Mistake(str(error)) from error


def _chosen(config: Config, app: App) -> str | None:
    if config.settings.node:
        return config.node
    if app.node_name is None:
        return None
    name: object = app.node_name()
    try:
        return checked_name(name if isinstance(name, str) else "", of="node")
    except BadName as error:
        raise Mistake(f"node_name() of the app gave {name!r}: {error}") from error


def name_at(place: int, *, stack: Stack, folder: Path) -> str:
    """Return the name of the node at `place` of `folder`, the same for ever."""
    where = f"{stack.name}\0{folder}\0{place}".encode(errors="surrogateescape")
    suffix = f"-{blake2b(where, digest_size=DIGEST_BYTES).hexdigest()}"
    return host_name(room_for=suffix) + suffix


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


@contextmanager
def _placed(config: Config) -> Iterator[str | None]:
    """Yield the name of the first free place; None if none can be kept."""
    folder = runfile.FOLDER / FOLDER
    if not _is_writable(folder):
        print(f"vigil: no name is kept, for want of {folder}; say VIGIL_NODE", file=sys.stderr)
        yield None
        return
    for place in range(PLACES_MAX):
        name = name_at(place, stack=config.stack, folder=Path.cwd())
        with runfile.file_lock(folder / f"{name}.lock") as is_held:
            if is_held:
                yield name
                return
    raise Trouble(f"{PLACES_MAX} nodes without a name of their own run here; say VIGIL_NODE")
