"""Every operation of the API, and which commands have none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from vigil.web.api.operation import AnyOperation
from vigil.web.api.operations import (
    actors,
    approvals,
    dead_letters,
    definitions,
    episodes,
    events,
    findings,
    outputs,
    people,
    retention,
    stack,
    workflows,
)

OPERATIONS: Final[Sequence[AnyOperation]] = (
    *events.OPERATIONS,
    *episodes.OPERATIONS,
    *approvals.OPERATIONS,
    *findings.OPERATIONS,
    *outputs.OPERATIONS,
    *workflows.OPERATIONS,
    *dead_letters.OPERATIONS,
    *actors.OPERATIONS,
    *definitions.OPERATIONS,
    *retention.OPERATIONS,
    *stack.OPERATIONS,
    *people.OPERATIONS,
)

SERVES: Final = "it serves processes of this machine"
NEEDS_APP: Final = "it runs code of an app, which the console does not have"
OF_MACHINE: Final = "it is about commands on the machines of people"
NEEDS_STOP: Final = "it works on the streams of a stopped stack"
TAKES_LONG: Final = "it reads the whole journal, and takes as long"
OF_ARCHIVE: Final = "the archive is where who runs the servers has put it"

NEEDS_SERVERS: Final = "it works on the servers themselves, with their settings"

NOT_REMOTE: Final[Mapping[str, str]] = {
    "demo": SERVES,
    "up": SERVES,
    "node": SERVES,
    "project": SERVES,
    "projections run": SERVES,
    "console": SERVES,
    "mcp serve": SERVES,
    "check": NEEDS_APP,
    "lab": NEEDS_APP,
    "mcp pins": NEEDS_APP,
    "events would": NEEDS_APP,
    "repartition": NEEDS_STOP,
    "uncompress": NEEDS_STOP,
    "projections status": "it is about the tables of a database, which `/doctor` looks at, too",
    "projections rebuild": TAKES_LONG,
    "projections verify": TAKES_LONG,
    "archive run": OF_ARCHIVE,
    "archive list": OF_ARCHIVE,
    "archive verify": OF_ARCHIVE,
    "archive cat": OF_ARCHIVE,
    "archive restore": OF_ARCHIVE,
    "backup create": NEEDS_SERVERS,
    "backup verify": NEEDS_SERVERS,
    "backup restore": NEEDS_SERVERS,
    "export": "the lists are operations, page by page",
    "encrypt": NEEDS_SERVERS,
    "erase": NEEDS_SERVERS,
    "users password": "passwords are no part of the API",
    "users require-login": OF_MACHINE,
    "login": OF_MACHINE,
    "logout": OF_MACHINE,
    "whoami": OF_MACHINE,
    "episodes tail": "`/episodes/{id}/log` is read again, or `/events/stream` is followed",
}
"""Command → why it is no operation."""
