"""A record stands for a call with other values, and the line where the ways part is told."""

from __future__ import annotations

import re

import pytest
from structlog.testing import capture_logs

from engine.app.actions import tool_call
from engine.app.findings import raise_finding
from streams.model.events import EndStatus, StepAnnounced, StepRecorded
from tests.engine.functions.stage import Ledger, app_of, middle, play, resume
from tests.engine.stage import Counter, Scripted

STANDS = "a record stands, though the replay asks with other values"


async def recorded(function, tools=None):
    return (await play(function, tools=tools)).of(StepRecorded)


async def told(function, steps, tools=None, **options):
    """Return the life of an episode that goes on with `function`, and what the log tells of it."""
    with capture_logs() as lines:
        life = await resume(app_of(function, tools=tools, **options), steps)
    return life, [each["how"] for each in lines if each["event"] == STANDS]


async def test_the_record_of_a_call_with_other_arguments_stands_and_one_line_tells_of_both():
    async def before(ctx, trigger):
        await ctx.call("disk.read", at=1)
        await ctx.call("disk.read", at=2)

    async def since(ctx, trigger):
        one = await ctx.call("disk.read", at=7)
        two = await ctx.call("disk.read", at=8)
        assert (one["at"], two["at"]) == (1, 2)

    disk = Ledger()
    steps = await recorded(before, {"disk": disk})
    disk.calls.clear()
    life, lines = await told(since, steps, {"disk": disk})
    assert (life.end.status, disk.calls) == (EndStatus.DONE, [])
    (line,) = lines
    assert line.startswith(
        'call 1 was tool_call disk.read {"at":1}; the replay asks for tool_call disk.read {"at":7}'
    )
    assert re.search(r"at test_other_values\.py:\d+, in since$", line)


async def test_the_record_of_a_sleep_of_another_length_stands():
    async def before(ctx, trigger):
        await ctx.sleep(0.01)

    async def since(ctx, trigger):
        await ctx.sleep(86_400)

    life, lines = await told(since, await recorded(before))
    assert life.end.status is EndStatus.DONE
    assert lines[0].startswith(
        "call 1 was sleep of 0.01 s; the replay asks for sleep of 86400 s at "
    )


async def test_a_sleep_that_has_begun_ends_when_it_was_announced_to():
    async def before(ctx, trigger):
        await ctx.gather(ctx.sleep(0.2), ctx.call("disk.read"))

    async def since(ctx, trigger):
        await ctx.gather(ctx.sleep(3_600), ctx.call("disk.read"))

    tools = {"disk": Ledger()}
    begun = middle(await play(before, tools=tools))[:2]
    life, lines = await told(since, begun, tools)
    assert life.end.status is EndStatus.DONE
    assert "; the replay asks for sleep of 3600 s" in lines[0]


@pytest.mark.parametrize("is_class", [False, True])
async def test_a_strict_expectation_parks_the_episode_instead(is_class):
    async def before(ctx, trigger):
        await ctx.call("disk.read", at=1)

    async def since(ctx, trigger):
        await ctx.call("disk.read", at=2)

    new = Scripted(tool_call("disk", "read", {"at": 2})) if is_class else since
    tools = {"disk": Ledger()}
    life, lines = await told(new, await recorded(before, tools), tools, replay="strict")
    assert 'disk.read {"at":1}; the replay asks for tool_call disk.read {"at":2}' in life.parked
    assert lines == []


async def test_an_approval_of_something_else_is_none():
    """What people have agreed to, they have not of anything else."""

    async def before(ctx, trigger):
        await ctx.approval({"restart": "web"}, expires_s=0.01, on_expiry="approve")

    async def since(ctx, trigger):
        await ctx.approval({"restart": "db"}, expires_s=0.01, on_expiry="approve")

    async def in_other_words(ctx, trigger):
        await ctx.approval({"restart": "web"}, summary="may it?", expires_s=0.01)

    steps = await recorded(before)
    assert (await told(since, steps))[0].parked.startswith("call 1 was approval")
    assert (await told(in_other_words, steps))[0].end.status is EndStatus.DONE


async def test_a_signal_for_something_else_is_none():
    async def before(ctx, trigger):
        await ctx.wait("payment:1", expires_s=0.01, on_expiry="continue")

    async def since(ctx, trigger):
        await ctx.wait("payment:2", expires_s=0.01, on_expiry="continue")

    async def for_longer(ctx, trigger):
        await ctx.wait("payment:1", expires_s=60, on_expiry="continue")

    steps = await recorded(before)
    assert (await told(since, steps))[0].parked.startswith("call 1 was wait")
    assert (await told(for_longer, steps))[0].end.status is EndStatus.DONE


async def test_a_side_effect_under_way_must_have_the_announced_values():
    async def before(ctx, trigger):
        await ctx.call("mail.send", to="ann")

    async def since(ctx, trigger):
        await ctx.call("mail.send", to="bob")

    mail = Counter(side_effect=True, idempotent=True)
    announced = (await play(before, tools={"mail": mail})).of(StepAnnounced)
    life, _ = await told(since, announced, {"mail": mail})
    assert life.parked.startswith("call 1 was tool_call mail.send")


async def test_the_line_of_a_gather_is_told_that_has_fewer_branches():
    """And not the first call after it."""

    async def before(ctx, trigger):
        await ctx.gather(ctx.observe(1), ctx.observe(2))
        await ctx.call("disk.read")

    async def narrower(ctx, trigger):
        await ctx.gather(ctx.observe(1))
        await ctx.call("disk.read")

    tools = {"disk": Ledger()}
    life, _ = await told(narrower, await recorded(before, tools), tools)
    line = narrower.__code__.co_firstlineno + 1
    assert f"the ways part at test_other_values.py:{line}, in narrower: " in life.parked


async def test_the_last_line_of_a_branch_is_told_that_ends_too_soon():
    async def both(ctx):
        await ctx.observe(1)
        await ctx.observe(2)

    async def one(ctx):
        await ctx.observe(1)

    async def before(ctx, trigger):
        await ctx.gather(both(ctx), ctx.observe(3))

    async def shorter(ctx, trigger):
        await ctx.gather(one(ctx), ctx.observe(3))
        await ctx.observe(4)

    life, _ = await told(shorter, await recorded(before))
    line = one.__code__.co_firstlineno + 1
    assert f"the ways part at test_other_values.py:{line}, in one: " in life.parked


async def test_the_last_line_of_a_function_is_told_that_ends_too_soon():
    async def before(ctx, trigger):
        await ctx.observe(1)
        await ctx.observe(2)

    async def shorter(ctx, trigger):
        await ctx.observe(1)

    life, _ = await told(shorter, await recorded(before))
    line = shorter.__code__.co_firstlineno + 1
    where = f"test_other_values.py:{line}, in shorter"
    assert f"the ways part at {where}: the replay ends, or waits, without it" in life.parked


async def test_other_values_before_another_call_are_told_with_it():
    async def before(ctx, trigger):
        await ctx.call("disk.read", at=1)
        await ctx.observe(2)

    async def since(ctx, trigger):
        await ctx.call("disk.read", at=7)
        await ctx.call("disk.look")

    tools = {"disk": Ledger()}
    life, _ = await told(since, await recorded(before, tools), tools)
    assert life.parked.startswith("call 2 was observation; the replay asks for tool_call disk.look")
    assert 'before that, call 1 was tool_call disk.read {"at":1}; ' in life.parked


async def test_findings_that_were_read_stand_for_another_key():
    async def before(ctx, trigger):
        await ctx.findings.get("disk:a")
        return raise_finding("disk:a", class_="disk", severity="low")

    async def since(ctx, trigger):
        assert await ctx.findings.get("disk:b") is None

    life, lines = await told(since, await recorded(before))
    assert life.end.status is EndStatus.DONE
    assert len(lines) == 1
