"""The flags that every command takes, wherever they are on the command line.

`in_front` moves them before the command, where typer looks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

DEBUG: Final = "--debug"

_NAMES: Final = (
    "nats_url", "nats_creds", "nats_inbox", "nats_domain", "postgres_dsn", "stack", "env", "node",
    "lease_s", "grace_s", "mode", "serve_stacks", "replicas", "partitions",
    "results_days", "log", "log_level",
)  # fmt: skip

SETTINGS: Final = {
    "--node-name" if name == "node" else f"--{name.replace('_', '-')}": name for name in _NAMES
}
"""Flag → the setting that it overrides."""


def in_front(arguments: Sequence[str]) -> list[str]:
    """Return `arguments` with every flag for all commands before everything else."""
    front: list[str] = []
    rest: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            rest += [word, *waiting]
            break
        flag, glued, _ = word.partition("=")
        if flag == DEBUG:
            front.append(word)
        elif flag in SETTINGS:
            front += [word] if glued else [word, *waiting[:1]]
            waiting = waiting if glued else waiting[1:]
        else:
            rest.append(word)
    return front + rest
