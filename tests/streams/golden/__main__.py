"""Write the golden file of every tag that has none yet. Released files are left alone."""

from __future__ import annotations

from pathlib import Path

from streams.ports.log import Commit
from streams.wire.codec import encode_command, encode_commit
from tests.streams.samples import AT, COMMANDS, EVENTS
from tests.streams.workflow_samples import WORKFLOW_COMMANDS

HERE = Path(__file__).parent


def write_missing() -> None:
    bodies = {tag: encode_commit(Commit(id="c", at=AT, events=e)) for tag, e in EVENTS.items()}
    bodies |= {
        tag: encode_command(command) for tag, command in {**COMMANDS, **WORKFLOW_COMMANDS}.items()
    }
    for tag, body in bodies.items():
        path = HERE / f"{tag}.json"
        if not path.exists():
            path.write_bytes(body + b"\n")


if __name__ == "__main__":
    write_missing()
