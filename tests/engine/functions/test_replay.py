"""What a replay of a function does, whenever its node dies: nothing twice, and the same end."""

from __future__ import annotations

import pytest

from engine.app.actions import Observe
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.episodes.fork import fork
from engine.errors import CallFailed
from streams.json import unraw
from streams.model.events import (
    CheckpointSaved,
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    StepAnnounced,
    StepRecorded,
)
from streams.model.triggers import Budget
from tests.engine.functions.stage import Ledger, app_of, middle, play, resume
from tests.engine.stage import did, kept, lived, open_episode, ports_in_memory, running

MANY = Budget(turns=100)


def tools() -> dict[str, Ledger]:
    return {"disk": Ledger(), "mail": Ledger(side_effect=True, idempotent=True)}


async def thorough(ctx, trigger):
    """Use everything that a replay must give back."""
    first = await ctx.call("disk.read", at=1)
    id_, at = ctx.uuid(), ctx.now()
    await ctx.call("mail.send", id=id_, at=at)
    try:
        await ctx.call("disk.fail")
    except CallFailed as failed:
        first["failed"] = failed.error_class
    await ctx.sleep(0.001)
    if ctx.changed("twice"):
        await ctx.call("mail.send", id=ctx.uuid())
    known = await ctx.findings.get("k")
    await ctx.observe([first, known is None, ctx.random()])


async def resumable(ctx, trigger):
    """Count to six, and keep the count after every second call."""
    count = ctx.resumed or 0
    while count < 6:
        await ctx.call("mail.send", number=count, id=ctx.uuid())
        await ctx.call("mail.send", number=count + 1, id=ctx.uuid())
        count += 2
        await ctx.checkpoint(count)
    return ConvergeResult(classification={"count": count})


def steps_of(life) -> list[tuple[str, str]]:
    return [(step.path, step.fingerprint) for step in life.of(StepRecorded)]


async def test_a_function_goes_on_after_any_event_with_what_is_recorded():
    whole = await play(thorough, tools=tools(), budget=MANY)
    events = middle(whole)
    for cut in range(len(events) + 1):
        used = tools()
        life = await resume(app_of(thorough, tools=used, budget=MANY), events[:cut])
        assert life.end.status is EndStatus.DONE, life.end.error_detail
        assert [path for path, _ in steps_of(life)] == [path for path, _ in steps_of(whole)]
        done = sum(isinstance(each, StepRecorded) for each in events[:cut])
        sent = [each for each in life.of(StepRecorded)[done:] if each.tool_name == "mail.send"]
        assert len(used["mail"].calls) == len(sent)


async def test_a_replay_begins_at_the_newest_checkpoint():
    whole = await play(resumable, tools=tools(), budget=MANY)
    events = [each for each in middle(whole) if not isinstance(each, EpisodeConverged)]
    for cut in range(len(events) + 1):
        life = await resume(app_of(resumable, tools=tools(), budget=MANY), events[:cut])
        assert life.end.status is EndStatus.DONE, life.end.error_detail
        assert steps_of(life) == steps_of(whole)


async def test_only_what_came_after_the_checkpoint_is_fed():
    seen = []

    async def check(ctx, trigger):
        seen.append(ctx.resumed)
        if ctx.resumed is None:
            await ctx.call("mail.send")
            await ctx.checkpoint({"sent": 1})
        await ctx.observe("after")
        await ctx.observe("last")

    whole = await play(check, tools=tools())
    cut = [each for each in middle(whole) if not isinstance(each, EpisodeConverged)]
    up_to = next(n for n, each in enumerate(cut) if isinstance(each, CheckpointSaved)) + 2
    used = tools()
    life = await resume(app_of(check, tools=used), cut[:up_to])
    assert (seen, used["mail"].calls) == ([None, {"sent": 1}], [])
    assert [step.path for step in life.of(StepRecorded)] == ["1", "2", "3", "4"]


async def test_a_side_effect_that_was_announced_is_repeated_under_its_key():
    async def check(ctx, trigger):
        await ctx.call("mail.send")

    whole = await play(check, tools=tools())
    announced = whole.of(StepAnnounced)[0]
    used = tools()
    await resume(app_of(check, tools=used), [announced])
    assert used["mail"].keys == [announced.idempotency_key]


async def test_a_side_effect_that_nobody_knows_about_is_not_repeated():
    async def check(ctx, trigger):
        try:
            await ctx.call("mail.send")
        except CallFailed:
            return

    used = {"mail": Ledger(side_effect=True)}
    whole = await play(check, tools={"mail": Ledger(side_effect=True)})
    life = await resume(app_of(check, tools=used), [whole.of(StepAnnounced)[0]])
    assert (life.end.error_class, used["mail"].calls) == ("outcome_unknown", [])
    assert life.end.error_detail.startswith("call 1, mail.send: a node died")


async def earlier(ctx, trigger):
    await ctx.call("disk.read", at=1)
    await ctx.call("disk.read", at=2)
    await ctx.call("disk.read", at=3)


async def steps_of_earlier() -> list[StepRecorded]:
    return (await play(earlier, tools=tools())).of(StepRecorded)


async def test_a_changed_function_is_told_both_sides_the_line_and_what_to_do():
    async def changed(ctx, trigger):
        await ctx.call("disk.read", at=1)
        await ctx.observe("new")

    life = await resume(app_of(changed, tools=tools()), (await steps_of_earlier())[:2])
    assert life.parked
    detail = life.parked
    assert detail.startswith("call 2 was tool_call disk.read; the replay asks for observation at ")
    assert "at test_replay.py:" in detail
    assert "in changed;" in detail
    assert 'if not ctx.changed("…")' in detail


@tool(redact=["token"])
async def log_in(user: str, token: str) -> str:
    return user


async def test_changed_arguments_are_shown_as_people_may_see_them_and_shortened():
    async def first(ctx, trigger):
        await ctx.call(log_in, user="ann", token="s3cret")

    async def then(ctx, trigger):
        await ctx.call(log_in, user="bob" * 100, token="t0psecret")

    steps = (await play(first, tools=[log_in])).of(StepRecorded)
    detail = (await resume(app_of(then, tools=[log_in], replay="strict"), steps)).parked
    was = '{"token":"***","user":"ann"}'
    asks = ('{"token":"***","user":"' + "bob" * 100)[:120]
    assert detail.startswith(f"call 1 was tool_call log_in.call {was}; the replay asks for ")
    assert f" {asks}… at test_replay.py:" in detail
    assert "cret" not in detail


async def test_arguments_that_differ_only_in_what_is_hidden_are_said_to_differ():
    """Not by their hashes, which confirm what somebody guesses."""

    async def first(ctx, trigger):
        await ctx.call(log_in, user="ann", token="s3cret")

    async def then(ctx, trigger):
        await ctx.call(log_in, user="ann", token="t0psecret")

    steps = (await play(first, tools=[log_in])).of(StepRecorded)
    detail = (await resume(app_of(then, tools=[log_in], replay="strict"), steps)).parked
    was, asks = "with values that are not shown", "tool_call log_in.call with other values at"
    assert detail.startswith(f"call 1 was tool_call log_in.call {was}; the replay asks for {asks}")
    assert steps[0].fingerprint[:8] not in detail
    assert "cret" not in detail


async def test_a_fork_that_takes_another_way_is_told_to_fork_earlier():
    async def check(ctx, trigger):
        await ctx.observe(trigger.payload)

    ports = ports_in_memory()
    app = app_of(check)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await lived(ports, episode_id)
        forked = await fork(ports, episode_id, at=1, by="ann", payload={"host": "web-99"})
        life = await lived(ports, forked)
    assert life.end.error_class == "nondeterministic_replay"
    assert "fork earlier, or at 0" in life.end.error_detail
    assert "ctx.changed" not in life.end.error_detail


async def test_a_function_that_ends_before_what_is_recorded_is_told():
    async def shorter(ctx, trigger):
        await ctx.call("disk.read", at=1)

    life = await resume(app_of(shorter, tools=tools()), await steps_of_earlier())
    assert life.parked
    assert "call 2 was tool_call disk.read" in life.parked
    assert "the replay ends, or waits, without it" in life.parked


async def test_a_function_that_ends_before_what_was_announced_is_told():
    async def sends(ctx, trigger):
        await ctx.call("mail.send")

    async def ends(ctx, trigger):
        pass

    announced = (await play(sends, tools=tools())).of(StepAnnounced)
    life = await resume(app_of(ends, tools=tools()), announced)
    assert life.parked
    assert "call 1 was tool_call mail.send" in life.parked


async def test_another_call_than_the_one_announced_is_not_made():
    async def sends(ctx, trigger):
        await ctx.call("mail.send", to="ann")

    async def sends_else(ctx, trigger):
        await ctx.call("mail.send", to="bob")

    announced = (await play(sends, tools=tools())).of(StepAnnounced)
    used = tools()
    life = await resume(app_of(sends_else, tools=used), announced)
    assert used["mail"].calls == []
    detail = life.parked
    was = "call 1 was tool_call mail.send with values that are not shown"
    asks = "the replay asks for tool_call mail.send with other values at "
    assert detail.startswith(f"{was}; {asks}")
    assert "in sends_else" in detail


async def later(ctx, trigger):
    await ctx.call("disk.read", at=1)
    if ctx.changed("observes"):
        await ctx.observe("new")
    await ctx.call("disk.read", at=2)
    await ctx.call("disk.read", at=3)
    return ConvergeResult(classification={"new": ctx.changed("observes")})


@pytest.mark.parametrize(("cut", "is_new"), [(0, True), (1, True), (2, False), (3, False)])
async def test_an_episode_follows_a_change_unless_it_has_gone_past_it(cut, is_new):
    life = await resume(app_of(later, tools=tools()), (await steps_of_earlier())[:cut])
    assert life.end.status is EndStatus.DONE, life.end.error_detail
    assert unraw(life.of(EpisodeConverged)[0].classification) == {"new": is_new}


async def test_an_episode_that_follows_a_change_does_so_after_a_crash_and_a_checkpoint():
    async def check(ctx, trigger):
        if ctx.resumed is None:
            ctx.changed("first")
            await ctx.checkpoint(1)
        await ctx.observe(1)
        return ConvergeResult(classification={"follows": ctx.changed("first")})

    whole = await play(check)
    events = [each for each in middle(whole) if not isinstance(each, EpisodeConverged)]
    for cut in range(len(events) + 1):
        life = await resume(app_of(check), events[:cut])
        assert unraw(life.of(EpisodeConverged)[0].classification) == {"follows": True}


async def test_a_time_above_a_gather_is_not_the_one_that_its_first_branch_recorded():
    async def timed(ctx):
        ctx.now()
        await ctx.call("disk.read", at=1)

    async def before(ctx, trigger):
        await ctx.gather(timed(ctx), ctx.call("disk.read", at=2))

    async def after(ctx, trigger):
        ctx.now()
        await before(ctx, trigger)

    steps = (await play(before, tools=tools())).of(StepRecorded)
    life = await resume(app_of(after, tools=tools()), steps)
    assert life.parked.startswith("call 1.1.1 was observation")
    assert "asks as call 1 for observation" in life.parked
    assert life.of(StepRecorded)[len(steps) :] == []


async def test_a_function_in_the_place_of_a_class_is_told():
    life = await resume(app_of(earlier, tools=tools()), [kept(), did(1, Observe(1), 1)])
    assert life.parked
    assert "a strategy class began it" in life.parked


async def test_a_log_line_is_written_once(capsys):
    async def check(ctx, trigger):
        ctx.log("first")
        await ctx.observe(1)
        ctx.log("second", of=2)

    steps = (await play(check)).of(StepRecorded)
    capsys.readouterr()
    await resume(app_of(check), steps)
    said = capsys.readouterr().out
    assert ("first" in said, "second" in said) == (False, True)


async def test_a_restart_begins_at_the_top_with_the_same_keys():
    async def check(ctx, trigger):
        await ctx.call("mail.send")
        await ctx.observe(1)

    whole = await play(check, tools=tools())
    used = tools()
    life = await resume(app_of(check, tools=used, recovery="restart"), middle(whole)[:2])
    assert used["mail"].keys == [whole.of(StepAnnounced)[0].idempotency_key]
    assert [step.path for step in life.of(StepRecorded)] == ["1", "1", "2"]


async def test_a_block_is_asked_again_by_the_same_path():
    async def check(ctx, trigger):
        await ctx.observe(1)
        await ctx.sleep(0.01)
        await ctx.approval({"x": 1})

    life = await play(check, reached=lambda so_far: so_far.of(EpisodeBlocked))
    assert life.of(EpisodeBlocked)[0].path == "3"


async def test_the_first_answer_about_a_change_stands_when_it_was_no():
    async def old(ctx, trigger):
        await ctx.call("disk.read")

    async def new(ctx, trigger):
        if ctx.resumed is None:
            if ctx.changed("prepares"):
                await ctx.observe("prepared")
            await ctx.call("disk.read")
            await ctx.checkpoint(1)
        return ConvergeResult(classification={"follows": ctx.changed("prepares")})

    first = (await play(old, tools=tools())).of(StepRecorded)
    whole = await resume(app_of(new, tools=tools()), first)
    events = [each for each in middle(whole) if not isinstance(each, EpisodeConverged)]
    for cut in range(1, len(events) + 1):
        life = await resume(app_of(new, tools=tools()), events[:cut])
        assert unraw(life.of(EpisodeConverged)[0].classification) == {"follows": False}, cut


async def test_a_sleep_of_another_length_is_told_with_both_lengths():
    async def first(ctx, trigger):
        await ctx.sleep(0.001)
        await ctx.observe("awake")

    async def then(ctx, trigger):
        await ctx.sleep(15)

    steps = (await play(first)).of(StepRecorded)
    detail = (await resume(app_of(then, replay="strict"), steps)).parked
    assert detail.startswith("call 1 was sleep of 0.001 s; the replay asks for sleep of 15 s at ")


async def test_a_tool_that_is_gone_while_a_call_was_under_way_parks_the_episode():
    async def check(ctx, trigger):
        await ctx.call("mail.send")

    announced = (await play(check, tools=tools())).of(StepAnnounced)
    life = await resume(app_of(check, tools={"disk": Ledger()}), announced)
    assert "this node has no such tool" in life.parked
