"""An archive of what is encrypted has it encrypted, and is read with the keys that are left."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streams.archive.history import with_history
from streams.layout import Stream
from streams.memory.bucket import MemorySubjectKeys
from streams.model.sealed import key_name
from streams.ports.log import EventLog, Recorded
from streams.sealing.ports import sealed_ports
from streams.sealing.seals import KEYS_S
from tests.engine.archive.stage import Stage, play
from tests.engine.reactor import journals as given
from tests.streams.test_sealing import SECRET, opened, step


async def read(log: EventLog, stage: Stage) -> Sequence[Recorded]:
    return await log.read(stage.stack.episode("mine"))


async def followed(log: EventLog, stage: Stage) -> Sequence[Recorded]:
    found: list[Recorded] = []
    async with log.follow(Stream.JOURNAL) as follower:
        while records := await follower.receive(most=100, wait_s=0.1):
            found += records
    return found


@pytest.mark.parametrize("way", [read, followed])
def test_what_was_archived_is_decrypted_until_its_key_is_destroyed(way):
    async def scene():
        stage, keys = Stage(), MemorySubjectKeys()
        sealed = sealed_ports(stage.ports, keys, ["client_id"], stage.clock)
        plain, stage.ports = stage.ports, sealed
        await stage.append(stage.stack.episode("mine"), opened("mine"), given.STARTED)
        await stage.append(stage.stack.episode("mine"), step())
        await stage.append(stage.stack.episode("mine"), given.FINISHED)
        stage.ports = plain
        await stage.later()
        report = await stage.one()
        assert report.purged.messages == 3

        async def find():
            return stage.archive

        log = with_history(sealed, find).log
        known = str(await way(log, stage))
        await keys.destroy(key_name("client_id/123"))
        await stage.clock.sleep(KEYS_S)
        erased = await way(log, stage)
        return known, str(erased), len(erased), b"".join(stage.store.files.values())

    known, erased, count, kept = play(scene())

    assert known.count(SECRET) >= 2
    assert SECRET not in erased
    assert count == 3
    assert SECRET.encode() not in kept
