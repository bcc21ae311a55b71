"""The state is projected from a stream of its own."""

from __future__ import annotations

from structlog.testing import capture_logs

from projections.postgres.progress import heads
from projections.postgres.reader import list_checkpoints
from streams.layout import Stream
from streams.wire import codec
from streams.wire.messages import COMMIT_HEADER
from tests.projections import lives
from tests.projections.lives import append, commit, projecting, rows_of, wait_projected, wait_until

KEY = "disk:h1"


async def places(pool, stack):
    return {row["projection"]: row["journal_seq"] for row in await list_checkpoints(pool, stack)}


def keep_in_journal(ports, subject, *events):
    """Put a commit into the journal that belongs into the state, as an earlier version did."""
    made = commit(*events)
    journal = ports.log._streams[ports.stack.stream(Stream.JOURNAL)]
    journal.publish(subject, codec.encode_commit(made), {COMMIT_HEADER: made.id})


async def test_journal_and_state_have_a_checkpoint_each(ports, pool):
    await append(ports.log, ports.stack.episode(lives.episode_id(1)), (lives.opened(1),))
    await append(ports.log, ports.stack.finding(KEY), (lives.raised(KEY),), (lives.cleared(KEY),))
    assert await heads(ports) == {"journal": 1, "state": 2}
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    reached = await places(pool, ports.stack)
    assert (reached["journal"], reached["state"]) == (1, 2)
    assert len(await rows_of(pool, "finding_events", stack=ports.stack)) == 2


async def test_rows_of_the_state_that_a_journal_has_made_are_not_added_to(ports, pool, stack):
    """Their positions are those of another stream: each event would be there twice."""
    keep_in_journal(ports, stack.finding(KEY), lives.raised(KEY))
    await lives.write_events(pool, lives.raised(KEY), stack=stack, subject=stack.finding(KEY))
    await append(ports.log, stack.finding(KEY), (lives.raised(KEY),))
    before = await rows_of(pool, "finding_events", stack=stack)
    with capture_logs() as logged:
        async with projecting(ports, pool):

            async def is_said():
                return any(each.get("projection") == "state" for each in logged)

            await wait_until(is_said)
    (said,) = [each for each in logged if each.get("projection") == "state"]
    assert (said["reason"], "that is journal" in said["error"]) == ("OtherJournal", True)
    assert await rows_of(pool, "finding_events", stack=stack) == before
