"""What a client does with episodes."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from engine.agents.prompts.agent_version import AgentVersion
from engine.episodes import results
from engine.episodes.episode import fold
from engine.operations.decide_request import ApprovalTarget
from projections.postgres.queries import query
from streams.clock import SystemClock
from streams.json import raw
from streams.model.deltas import Delta, DeltaEnd
from streams.model.events import EndStatus, KeptJson, KeptPrompt, StepKind, StepRecorded
from streams.model.triggers import LogStrategy, Mode
from streams.model.waits import OnExpiry
from tests.client.happened import happened, lived
from tests.projections import lives
from tests.projections.lives import projecting, wait_projected
from vigil.errors import Mistake, NotFound, Trouble

DONE = (lives.started(), lives.recorded(1), lives.converged(), lives.finished())


async def test_episodes_are_listed_in_pages_counted_and_found_by_the_beginning_of_an_id(
    ports, pool, client
):
    ids = [await lived(ports, number << 96, *DONE) for number in range(1, 4)]
    waiting = await lived(ports, 4 << 96)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        first = await client.episodes.list(actor="monitor", limit=3)
        second = await client.episodes.list(actor="monitor", after=first.next, limit=3)
        done = await client.episodes.list(status="done")
        counts = await client.episodes.count(actor="monitor")
        one = await client.episodes.get(ids[0][:8])
        with pytest.raises(Mistake, match="begins the ids of several episodes"):
            await client.episodes.get("0000")
        with pytest.raises(NotFound, match="has an id that begins with 'fff'") as raised:
            await client.episodes.get("fff")

    seen = [str(each.episode_id) for each in (*first.items, *second.items)]
    assert (seen[0], sorted(seen)) == (waiting, sorted([*ids, waiting]))
    assert second.next is None
    assert {str(each.episode_id) for each in done.items} == set(ids)
    assert counts == {"done": 3, "queued": 1}
    assert (str(one.episode_id), one.summary) == (ids[0], "the disk is full")
    assert raised.value.remedy == "`vigil episodes list` shows those that there are"


async def test_episodes_that_failed_alike_are_one_row(ports, pool, client):
    crashed = lives.finished(EndStatus.FAILED, error_class="crash", error_detail="boom")
    spent = lives.finished(EndStatus.FAILED, error_class="budget_exceeded")
    broken = replace(lives.recorded(1), error_class="crash", tool_name="stock.read")
    for number in (1, 2, 3):
        await lived(ports, number << 96, lives.started(), broken, crashed)
    await lived(ports, 4 << 96, lives.started(), crashed)
    await lived(ports, 5 << 96, lives.started(), spent)
    await lived(ports, 6 << 96, *DONE)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        groups = await client.episodes.failures()
        none = await client.episodes.failures(actor="nobody")
        members = await client.episodes.list(status="failed", error_class="crash")

    found = {(each.error_class, each.tool_name): each.episodes for each in groups}
    assert found == {
        ("crash", "stock.read"): 3,
        ("crash", None): 1,
        ("budget_exceeded", None): 1,
    }
    assert none == []
    assert {each.error_class for each in members} == {"crash"}
    assert len(members.items) == 4


async def test_failures_are_found_by_an_index(pool, client):
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL enable_seqscan = off")
        plan = await connection.fetch(
            f"EXPLAIN {query('list_failures')}", client.stack.name, None, None, None, 10, 10
        )

    text = "\n".join(row[0] for row in plan)
    assert "using episodes_by_status on episodes" in text
    assert "Seq Scan" not in text


async def test_one_episode_is_shown_with_its_steps_its_log_and_its_results(ports, pool, client):
    id_ = await lived(ports, 1, *DONE)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        latest = await client.episodes.latest()
        shown = await client.episodes.describe(id_)
        steps = await client.episodes.steps(id_)
        timeline = await client.episodes.timeline(id_)
        log = await client.episodes.log(id_)
        lines = [each async for each in client.episodes.tail(id_)]
        ended = await client.episodes.wait(id_)
    assert latest == UUID(id_)
    assert (shown["waits_for"], shown["outputs"], shown["children"]) == (None, [], [])
    assert [(each.step_no, each.tool_name) for each in steps.items] == [(1, "disk.clean")]
    assert timeline.items[0].kind == "episode_opened"
    assert [each["line"] for each in lines] == [each["line"] for each in log.rows]
    assert ended.status == "done"
    assert await client.episodes.result(id_, 1) == "done"
    assert [each.number for each in await client.episodes.replay(id_)] == [1, 2, 3, 4, 5]
    with pytest.raises(NotFound, match="no step 7"):
        await client.episodes.result(id_, 7)


async def test_a_tail_has_what_models_answer_between_the_lines_of_the_log(ports, pool, client):
    id_ = await lived(ports, 1, lives.started(), lives.recorded(1))

    def tell(place, text="", *, attempt=1, end=None):
        said = Delta(path="1.m1.1", attempt=attempt, place=place, text=text, end=end)
        ports.deltas.publish(id_, said)

    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        tail = client.episodes.tail(id_, deltas=True)
        lines = [await anext(tail) for _ in range(3)]
        tell(0, "the disk ")
        tell(0, "the disk is ", attempt=2)
        tell(1, "lost")
        tell(2, "full", attempt=2, end=DeltaEnd.DONE)
        told = [await anext(tail) for _ in range(3)]
        await happened(ports, ports.stack.episode(id_), lives.converged(), lives.finished())
        rest = [each async for each in tail]
    assert [each["kind"] for each in lines] == ["episode_opened", "episode_started", "tool_call"]
    assert [(e["kind"], e["line"], e["missing"], e["is_anew"], e["end"]) for e in told] == [
        ("delta", "the disk ", 0, False, None),
        ("delta", "the disk is ", 0, True, None),
        ("delta", "full", 1, False, "done"),
    ]
    assert [each["kind"] for each in rest] == ["episode_finished"]


async def test_a_tail_that_shows_no_answers_has_no_deltas(ports, pool, client):
    id_ = await lived(ports, 1, *DONE)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        rows = client.episodes.tail(id_, strategy="summary_only", deltas=True)
        assert [each["kind"] async for each in rows] == ["episode_finished"]


async def test_what_a_model_was_asked_is_told_under_full_debug_alone(ports, pool, client):
    version = AgentVersion(model="openai:gpt-5", instructions="be brief")
    stored = await results.store(ports.objects, raw(version), about="")
    said = [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "why?"}]}]
    kept = KeptPrompt(agent=KeptJson(stored=stored), messages=KeptJson(json=raw(said)))
    asked = StepRecorded(
        step_no=1,
        kind=StepKind.MODEL_REQUEST,
        fingerprint="f",
        agent="triage:5c1f",
        path="1.m1.1",
        prompt=kept,
    )
    id_ = await lived(ports, 1, lives.started(), asked, lives.recorded(2))
    lost = replace(asked, prompt=replace(kept, agent=KeptJson(stored=replace(stored, digest="0"))))
    other = await lived(ports, 2, lives.started(), lost)
    found = await client.episodes.prompt(id_, 1)
    assert (found.episode_id, found.agent, found.model) == (id_, "triage:5c1f", "openai:gpt-5")
    assert (found.instructions, found.messages) == ("be brief", tuple(said))
    assert await client.episodes.prompt(id_) == found
    assert found.requests == (1,)
    with pytest.raises(NotFound, match="no step 7"):
        await client.episodes.prompt(id_, 7)
    with pytest.raises(Trouble, match="step 2 is tool_call, not model_request"):
        await client.episodes.prompt(id_, 2)
    with pytest.raises(Trouble, match="is gone"):
        await client.episodes.prompt(other, 1)
    silent = await lived(ports, 4, *DONE)
    with pytest.raises(Trouble, match="the episode has asked no model"):
        await client.episodes.prompt(silent)
    opened = replace(lives.opened(3), log_strategy=LogStrategy.TIMELINE)
    hidden = opened.episode_id
    await happened(ports, ports.stack.episode(hidden), opened, lives.started(), asked)
    with pytest.raises(Trouble, match="its log strategy is timeline: what models are asked is"):
        await client.episodes.prompt(hidden, 1)


async def test_an_episode_that_sleeps_is_shown_with_the_end_of_its_sleep(ports, pool, client):
    until = SystemClock().now() + timedelta(days=1)
    asleep = lives.blocked(ref="", expires_at=until, on_expiry=OnExpiry.CONTINUE)
    id_ = await lived(ports, 1, lives.started(), asleep)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        shown = await client.episodes.describe(id_)
    assert (shown["status"], shown["blocked_by"]) == ("blocked", None)
    assert (shown["waits_for"]["ref"], shown["waits_for"]["expires_at"]) == ("", until)


async def test_an_episode_that_has_not_ended_in_time_is_trouble(ports, pool, client):
    id_ = await lived(ports, 1)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        with pytest.raises(Trouble, match=r"is still queued after 0 s"):
            await client.episodes.wait(id_, timeout_s=0)
        with pytest.raises(Trouble, match=r"has not ended after 0 s"):
            _ = [each async for each in client.episodes.tail(id_, timeout_s=0)]


async def test_an_episode_that_is_fired_says_why_it_waits_and_whether_it_is_new(client):
    first = await client.fire("monitor", "check_disk", {"host": "h1"}, key="k", reason="look")
    again = await client.episodes.fire("monitor", "check_disk", {"host": "h1"}, key="k")
    assert first.is_new
    assert again.episode_id == first.episode_id
    assert first.obstacle == "no node that is up has it"
    with pytest.raises(Mistake, match="priority"):
        await client.fire("monitor", "check_disk", priority=10**9)


async def test_open_episodes_are_canceled_and_ended_ones_stay(ports, client):
    ended, queued = await lived(ports, 1, *DONE), await lived(ports, 2)
    unknown = lives.episode_id(3)
    done, open_, none = await client.episodes.cancel(ended, queued, unknown, reason="a typo")
    assert (done.status, done.is_open, done.outlook) == ("done", False, "done")
    assert (open_.is_open, open_.outlook) == (True, "queued, to be canceled")
    assert none.status == ""
    assert await ports.commands.is_waiting("monitor", queued)
    assert not await ports.commands.is_waiting("monitor", ended)


async def test_all_open_episodes_of_an_actor_are_found_and_an_unknown_actor_is_not(
    ports, pool, client
):
    await lived(ports, 1, *DONE)
    queued = await lived(ports, 2)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        found = await client.episodes.unended("monitor")
        with pytest.raises(NotFound, match="nobody knows an actor 'nobody'"):
            await client.episodes.unended("nobody")
    assert [str(each.episode_id) for each in found] == [queued]


async def test_a_fork_begins_with_the_same_steps_and_is_opened_once_for_a_key(ports, client):
    id_ = await lived(ports, 1, *DONE)
    first = await client.episodes.fork(id_, at=1, key="k")
    again = await client.episodes.fork(id_, at=1, key="k")
    assert (first.actor_id, first.obstacle) == ("monitor", "no node that is up has it")
    assert again.episode_id == first.episode_id
    with pytest.raises(NotFound, match="on the journal of stack"):
        await client.episodes.fork(lives.episode_id(9), at=1)
    with pytest.raises(Trouble):
        await client.episodes.settle(id_, "again")


async def test_a_fork_that_is_a_dry_run_takes_no_key_of_a_real_one(ports, client):
    id_ = await lived(ports, 1, *DONE)
    dry = await client.episodes.fork(id_, at=1, key="k", dry_run=True)
    again = await client.episodes.fork(id_, at=1, key="k", dry_run=True)
    real = await client.episodes.fork(id_, at=1, key="k")
    assert dry.episode_id == again.episode_id
    assert dry.episode_id != real.episode_id


async def test_several_forks_can_be_dry_runs(ports, client):
    found = await client.episodes.read([await lived(ports, 1, *DONE)])
    (dry,) = await client.episodes.fork_each(found, at=1, dry_run=True)
    (real,) = await client.episodes.fork_each(found, at=1)
    modes = [
        fold(await ports.log.read(ports.stack.episode(each.episode_id))).opened.mode
        for each in (dry, real)
    ]
    assert modes == [Mode.DRY_RUN, Mode.LIVE]


async def test_a_request_is_decided_only_as_it_was_seen(ports, client):
    id_ = await lived(ports, 1, lives.started(), lives.recorded(1), lives.saved(), lives.blocked(2))
    target = ApprovalTarget("episode", id_)
    asked = await client.approvals.read(target)
    assert (asked.approval.plan_hash, asked.decision) == (lives.PLAN_HASH, None)
    with pytest.raises(Trouble, match="waits for a decision on another plan: abab"):
        await client.approvals.decide(target, "approve", plan_hash="12345678")
    with pytest.raises(Mistake, match="plan_hash: '12' is not 8 to 64 hex digits"):
        await client.approvals.decide(target, "deny", plan_hash="12")
    decided = await client.approvals.decide(target, "deny", plan_hash=lives.PLAN_HASH[:8])
    assert decided.done == "sent; a node decides on it"
    assert await ports.commands.is_waiting("monitor", id_)


async def test_an_episode_that_asks_is_named_by_the_beginning_of_its_id(ports, pool, client):
    id_ = await lived(ports, 1, lives.started(), lives.recorded(1), lives.saved(), lives.blocked(2))
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    for target in (id_[:8], UUID(id_), ApprovalTarget("episode", id_[:8])):
        asked = await client.approvals.read(target)
        assert asked.approval.plan_hash == lives.PLAN_HASH
    decided = await client.approvals.decide(id_[:8], "approve", wait_s=None)
    assert decided.name == id_
    assert await ports.commands.is_waiting("monitor", id_)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (
            "page:web-9",
            r"'page:web-9' is no id of an episode; give .*ApprovalTarget\('output'",
        ),
        (ApprovalTarget("lane", "x"), "kind: 'lane'; use episode, output or step"),
        (ApprovalTarget("episode", "x"), "'x' is no episode id"),
        (7, "7 asks for nothing; give the id of an episode"),
    ],
)
async def test_what_nothing_that_asks_is_called_is_a_mistake(client, target, says):
    with pytest.raises(Mistake, match=says):
        await client.approvals.read(target)
    with pytest.raises(Mistake, match=says):
        await client.approvals.decide(target, "deny")


async def test_what_does_not_ask_is_not_decided(ports, client):
    id_ = await lived(ports, 1, *DONE)
    with pytest.raises(Trouble, match="does not ask for approval"):
        await client.approvals.decide(ApprovalTarget("episode", id_), "approve")
    with pytest.raises(NotFound, match="no output 'k' in stack"):
        await client.approvals.read(ApprovalTarget("output", "k"))


async def test_a_signal_that_nobody_waits_for_is_sent_for_later_and_not_resolved(ports, client):
    sent = await client.signal("payment:42", {"paid": True}, id="s1")
    assert (sent.id, sent.is_new) == ("s1", True)
    (event,) = await ports.domain_events.page(after=0)
    assert event.payload == {"ref": "payment:42", "result": {"paid": True}, "by": "ann"}
    with pytest.raises(Trouble, match=r"for a future one, publish wait.resolved"):
        await client.signals.resolve("payment:42")
