"""A backup has streams as the server has them, and a restored stack is the same one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from streams.embedded import EmbeddedNats
from streams.errors import Incompatible
from streams.jetstream import connect
from streams.jetstream.backup.create import create_backup
from streams.jetstream.backup.files import by_part, digest_of, read_backup, verify
from streams.jetstream.backup.restore import restore_backup
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.messages import api
from streams.keys import STREAMS
from streams.layout import Stream
from streams.model.losses import EarlierStream, KnownPast, Notes
from streams.ports.log import START
from streams.subjects import Stack
from tests.contracts.samples import commit, deliveries_of


@pytest.fixture
def other(tmp_path):
    """Another server, with nothing on it."""
    with EmbeddedNats(tmp_path / "other", sync='"2m"') as server:
        yield server
        server.kill()


def untold(part: str, done: int, total: int) -> None:
    """Nobody is told."""


async def saved(nats: EmbeddedNats, stack: Stack, folder: Path, *, is_incremental: bool = False):
    return await create_backup(
        nats.url, stack=stack, folder=folder, is_incremental=is_incremental, tell=untold
    )


async def restored(server: EmbeddedNats, folder: Path, *, replaces: bool = False):
    backup = read_backup(folder)
    return await restore_backup(server.url, backup=backup, replaces=replaces, tell=untold)


async def test_a_restored_stack_has_all_at_its_sequences(nats, other, stack, tmp_path):
    episode, folder = stack.episode("e1"), tmp_path / "kept"
    async with connect(nats.url, stack=stack) as ports:
        await ports.log.append(episode, commit("c1"), after=START)
        await ports.domain_events.publish("a.b", {"n": 1}, id="x1")
        source = await ports.domain_events.open("monitor", ["a.b"], after=0)
        [delivery] = await deliveries_of(source, 1)
        await delivery.ack()
        await source.close()
        await ports.domain_events.publish("a.b", {"n": 2}, id="x2")
        await ports.registry.put("mode.n1", b"full")
        digest = await ports.objects.put(b"large")
        await saved(nats, stack, folder)
        # The increment has what came since.
        await ports.log.append(episode, commit("c2", 2), after=1)
        await ports.log.append(stack.finding("f"), commit("c3", 3), after=START)
        await saved(nats, stack, folder, is_incremental=True)
        expected = [*await ports.log.read(episode), *await ports.log.read(stack.finding("f"))]

    await restored(other, folder)

    async with connect(other.url, stack=stack, creates=False) as ports:
        found = [*await ports.log.read(episode), *await ports.log.read(stack.finding("f"))]
        assert found == expected
        assert (await ports.registry.get("mode.n1")).value == b"full"
        assert await ports.objects.get(digest) == b"large"
        source = await ports.domain_events.open("monitor", ["a.b"])
        [delivery] = await deliveries_of(source, 1)
        assert delivery.content.payload == {"n": 2}, "the first one was acknowledged"
        await source.close()
        assert await ports.log.append(episode, commit("c4", 4), after=2) == 3


async def test_what_was_archived_before_is_known_of_a_restored_stack(nats, other, stack, tmp_path):
    known = {"journal": KnownPast(created="2030-01-01T00:00:00Z", seq=9, archived=7)}
    async with connect(nats.url, stack=stack) as ports:
        for bucket in (ports.registry, ports.gates):
            await bucket.put(STREAMS, msgspec.json.encode(known))
        before = await ports.states.of("journal")
        await saved(nats, stack, tmp_path / "kept")

    await restored(other, tmp_path / "kept")

    async with connect(other.url, stack=stack, creates=False) as ports:
        noted = msgspec.json.decode((await ports.registry.get(STREAMS)).value, type=Notes)
        state = await ports.states.of("journal")
    assert (noted["journal"].archived, noted["journal"].seq) == (7, 0)
    assert noted["journal"].created == state.created
    assert noted["journal"].continues == (EarlierStream(created=before.created, seq=0),)
    assert noted["events"].continues == ()


async def test_an_increment_shares_what_nobody_has_changed(nats, stack, tmp_path):
    async with connect(nats.url, stack=stack) as ports:
        await ports.log.append(stack.episode("e1"), commit("c1"), after=START)
        full = await saved(nats, stack, tmp_path)
        await ports.log.append(stack.episode("e1"), commit("c2", 2), after=1)
        more = await saved(nats, stack, tmp_path, is_incremental=True)

    before, after = by_part(full.manifest), by_part(more.manifest)
    assert after["dead"] == before["dead"]
    assert after["journal"].snapshot == before["journal"].snapshot
    assert [each.name for each in after["journal"].commits] == ["journal.1.commits"]
    for name in ("dead.snapshot", "journal.snapshot"):
        assert (full.folder / name).samefile(more.folder / name)


async def test_a_stream_that_was_made_anew_is_saved_whole(nats, stack, tmp_path):
    async with connect(nats.url, stack=stack) as ports:
        await ports.log.append(stack.episode("e1"), commit("c1"), after=START)
    full = await saved(nats, stack, tmp_path)
    async with Link(nats.url, LinkSettings()) as link:
        name = stack.stream(Stream.JOURNAL)
        config = (await api.call(link, f"STREAM.INFO.{name}"))["config"]
        await api.call(link, f"STREAM.DELETE.{name}")
        await api.call(link, f"STREAM.CREATE.{name}", config)
    more = await saved(nats, stack, tmp_path, is_incremental=True)
    assert by_part(more.manifest)["journal"].commits == ()
    assert by_part(more.manifest)["journal"].created != by_part(full.manifest)["journal"].created


async def test_a_stream_that_was_purged_past_the_backup_is_saved_whole(
    nats, other, stack, tmp_path
):
    folder, episode = tmp_path / "kept", stack.episode("e1")
    async with connect(nats.url, stack=stack) as ports:
        await ports.log.append(episode, commit("c1"), after=START)
        await saved(nats, stack, folder)
        await ports.log.append(episode, commit("c2", 2), after=1)
        await ports.log.append(episode, commit("c3", 3), after=2)
        await ports.states.purge("journal", below=3)
        more = await saved(nats, stack, folder, is_incremental=True)

    await restored(other, folder)

    assert by_part(more.manifest)["journal"].commits == ()
    async with connect(other.url, stack=stack, creates=False) as ports:
        assert [each.seq for each in await ports.log.read(episode)] == [3]


async def test_an_increment_that_lacks_a_commit_restores_nothing_after_it(
    nats, other, stack, tmp_path
):
    folder, episode = tmp_path / "kept", stack.episode("e1")
    async with connect(nats.url, stack=stack) as ports:
        await ports.log.append(episode, commit("c1"), after=START)
        await saved(nats, stack, folder)
        await ports.log.append(episode, commit("c2", 2), after=1)
        await ports.log.append(episode, commit("c3", 3), after=2)
        more = await saved(nats, stack, folder, is_incremental=True)
    path = more.folder / "journal.1.commits"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    sha256, size = digest_of(path)
    manifest = more.folder / "manifest.json"
    found = by_part(more.manifest)["journal"].commits[0]
    text = manifest.read_text().replace(found.sha256, sha256)
    manifest.write_text(text.replace(f'"size_bytes": {found.size_bytes}', f'"size_bytes": {size}'))

    with pytest.raises(Incompatible, match="it lacks what is before 3"):
        await restored(other, folder)


async def test_how_far_somebody_has_read_is_saved_again(nats, stack, tmp_path):
    async with connect(nats.url, stack=stack) as ports:
        await ports.domain_events.publish("a.b", {"n": 1}, id="x1")
        source = await ports.domain_events.open("monitor", ["a.b"], after=0)
        full = await saved(nats, stack, tmp_path)
        [delivery] = await deliveries_of(source, 1)
        await delivery.ack()
        await source.close()
        more = await saved(nats, stack, tmp_path, is_incremental=True)
    events = full.folder / "events.snapshot", more.folder / "events.snapshot"
    assert not events[0].samefile(events[1])


async def test_what_is_there_is_only_replaced_if_that_is_asked_for(nats, stack, tmp_path):
    async with connect(nats.url, stack=stack) as ports:
        await ports.log.append(stack.episode("e1"), commit("c1"), after=START)
        await saved(nats, stack, tmp_path)
        await ports.log.append(stack.episode("e1"), commit("c2", 2), after=1)

    with pytest.raises(Incompatible, match="is there"):
        await restored(nats, tmp_path)
    await restored(nats, tmp_path, replaces=True)
    async with connect(nats.url, stack=stack, creates=False) as ports:
        assert len(await ports.log.read(stack.episode("e1"))) == 1


async def test_a_backup_of_another_stack_is_not_added_to(nats, stack, tmp_path):
    async with connect(nats.url, stack=stack):
        pass
    with pytest.raises(Incompatible, match="has no backup"):
        await saved(nats, stack, tmp_path, is_incremental=True)
    await saved(nats, stack, tmp_path)
    with pytest.raises(Incompatible, match=f"of stack {stack.name}"):
        await saved(nats, Stack("another"), tmp_path, is_incremental=True)


@pytest.mark.parametrize("how", ["changed", "missing", "elsewhere", "newer"])
async def test_a_damaged_backup_restores_nothing(nats, stack, tmp_path, how):
    async with connect(nats.url, stack=stack):
        pass
    made = await saved(nats, stack, tmp_path)
    spoil(made.folder, how)

    with pytest.raises(Incompatible):
        verify(read_backup(tmp_path))
    with pytest.raises(Incompatible):
        await restored(nats, tmp_path, replaces=True)
    async with connect(nats.url, stack=stack, creates=False):
        pass
    if how != "newer":
        with pytest.raises(Incompatible):
            await saved(nats, stack, tmp_path, is_incremental=True)


def spoil(folder: Path, how: str) -> None:
    file, manifest = folder / "journal.snapshot", folder / "manifest.json"
    said = msgspec.json.decode(manifest.read_bytes())
    match how:
        case "changed":
            file.write_bytes(file.read_bytes()[:-1] + b"?")
        case "missing":
            file.unlink()
        case "elsewhere":
            # The same bytes, in a folder that is none of the backup's.
            other = folder.parent / "other.snapshot"
            other.write_bytes(file.read_bytes())
            journal = next(each for each in said["streams"] if each["part"] == "journal")
            journal["snapshot"]["name"] = "../other.snapshot"
        case _:
            said["version"] += 1
    manifest.write_bytes(msgspec.json.encode(said))
