"""The outside world, as a process that remembers: every call it got, and every effect it had.

One call is one line of JSON on a connection of its own, answered by one line. A caller that
wants its key honoured has one effect for it, however often it calls; any other call has an
effect each time. What happened is appended to a file before anybody is answered.

    python -m tests.chaos.ledger FILE --answer-s 0.05
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from streams.child import die_with

ROOT: Final = Path(__file__).parents[2]
STOP_S_MAX: Final = 5.0


class Call(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """Somebody asked for something."""

    key: str
    honoured: bool
    """Whether a repeated key is the same effect."""
    node: str
    begun_at: datetime
    """By the caller's clock, right before it called: what it decided, it had decided by then."""


class Effect(msgspec.Struct, frozen=True, kw_only=True, tag="effect"):
    """Something happened, for a key."""

    key: str
    receipt: int
    """1 for the first effect of all, and so on."""


_encoder: Final = msgspec.json.Encoder()
_call: Final = msgspec.json.Decoder(Call)
_line: Final[msgspec.json.Decoder[Call | Effect]] = msgspec.json.Decoder(Call | Effect)
_effect: Final = msgspec.json.Decoder(Effect)


async def call(port: int, asked: Call) -> Effect:
    """Return the effect of what is `asked` of the ledger on `port`.

    Raises:
        ConnectionError: it went away before it answered.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(_encoder.encode(asked) + b"\n")
        answer = await reader.readline()
    finally:
        writer.close()
    if not answer:
        raise ConnectionResetError("the ledger went away")
    return _effect.decode(answer)


@dataclass(frozen=True)
class Entries:
    """What the ledger's file says."""

    calls: dict[str, list[Call]]
    """By key, oldest first."""
    effects: dict[str, list[Effect]]

    @classmethod
    def read(cls, path: Path) -> Entries:
        calls, effects = defaultdict[str, list[Call]](list), defaultdict[str, list[Effect]](list)
        for line in path.read_bytes().splitlines():
            match _line.decode(line):
                case Call() as called:
                    calls[called.key].append(called)
                case Effect() as effect:
                    effects[effect.key].append(effect)
        return cls(calls, effects)


@dataclass
class Ledger:
    """The process's own side."""

    file: BinaryIO
    answer_s: float
    receipts: dict[str, Effect]
    effects: Counter[str]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            effect = self._take(_call.decode(await reader.readline()))
            await asyncio.sleep(self.answer_s)  # As slow as the outside world is.
            writer.write(_encoder.encode(effect) + b"\n")
            await writer.drain()
        except (OSError, msgspec.DecodeError):
            return  # A caller that was killed while it called.
        finally:
            writer.close()

    def _take(self, called: Call) -> Effect:
        self._note(called)
        known = self.receipts.get(called.key)
        if known is not None and called.honoured:
            return known
        self.effects[called.key] += 1
        effect = Effect(key=called.key, receipt=self.effects.total())
        self._note(effect)
        self.receipts[called.key] = effect
        return effect

    def _note(self, what: Call | Effect) -> None:
        self.file.write(_encoder.encode(what) + b"\n")


async def serve(path: Path, answer_s: float) -> None:
    with path.open("ab", buffering=0) as file:
        ledger = Ledger(file, answer_s, {}, Counter())
        server = await asyncio.start_server(ledger.serve, "127.0.0.1", 0, backlog=1_024)
        print(server.sockets[0].getsockname()[1], flush=True)
        async with server:
            await server.serve_forever()


@contextmanager
def running(path: Path, *, answer_s: float) -> Iterator[int]:
    """Run a ledger that writes to `path`, and yield its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.ledger", str(path), "--answer-s", str(answer_s)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one system call, no locks
    )
    with process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()
            process.wait(STOP_S_MAX)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("file", type=Path)
    arguments.add_argument("--answer-s", type=float, required=True)
    chosen = arguments.parse_args()
    asyncio.run(serve(chosen.file, chosen.answer_s))


if __name__ == "__main__":
    main()
