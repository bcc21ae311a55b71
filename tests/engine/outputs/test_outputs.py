"""Outputs, from what a strategy wants to what the outside has, whatever misbehaves in between."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from engine.app.actions import Done, Retries, observe
from engine.app.outputs import DeliveryFailed, Route, output, plan_hash, propose_output
from engine.episodes.cancel import cancel
from engine.episodes.episode import Status
from engine.episodes.fire import fire
from engine.errors import Refused
from engine.operations.dead_letters import DeadLetterRequests
from engine.outputs.decide import LACKED_PAUSE_S_MAX, LACKS_MAX
from engine.outputs.output import fold
from engine.outputs.requests import retry_output
from streams.errors import LeaseLost
from streams.json import raw, unraw
from streams.layout import Stream
from streams.model.events import (
    DeadLettered,
    DeadRequeued,
    EndStatus,
    EpisodeDeferred,
    EpisodeFinished,
    EpisodeStarted,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputFailed,
    OutputPostponed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
    StepAnnounced,
)
from streams.model.outputs import OutputStatus
from tests.engine.crew import attempt_of, crew_of, delivery_of
from tests.engine.output_stage import Frost, Pager, Proposing, Scene, app_of, broken, busy, play
from tests.engine.stage import Life, claims, decide, opening
from tests.gates.place import Doom
from tests.moments import moments

PAGE = {"text": "disk full"}


def page(**said: object):
    return propose_output("pager", PAGE, **said)


def paging(*plan, outputs=(), pager=None, route=None, finds=False, **declared):
    """Return an app that converges with `outputs`, and has one adapter."""
    pager = pager or Pager()
    strategy = Proposing(*plan, outputs=outputs, finds=finds)
    return app_of(strategy, {"pager": route(pager) if route else pager}, **declared)


async def ends(scene: Scene):
    """The story of one episode, from its opening to its end."""
    return await scene.ended(await scene.open())


def outcomes(life) -> list[str]:
    return [each.outcome for each in life.end.outputs]


def happened(scene: Scene, kind: type) -> list:
    return [each for each in scene.events(Stream.JOURNAL) if isinstance(each, kind)]


# Delivery.


def test_an_output_is_delivered_and_the_episode_is_done():
    pager = Pager("r-1")
    life, scene = play(ends, paging(outputs=[page()], pager=pager))
    (view,) = pager.views
    assert (view.payload, view.adapter, view.attempt) == (PAGE, "pager", 1)
    assert (view.episode_id, view.stack) == (life.episode.opened.episode_id, "vigil")
    assert (life.end.status, outcomes(life)) == (EndStatus.DONE, ["delivered"])
    assert happened(scene, OutputDelivered) == [OutputDelivered(attempt=1, delivered_ref="r-1")]
    assert not life.of(EpisodeDeferred)


def test_proposal_and_first_attempt_are_one_commit():
    async def story(scene: Scene):
        life = await ends(scene)
        return [
            [type(event) for event in record.commit.events]
            for record in await scene.records(life.end.outputs[0].output_key)
        ]

    commits, _ = play(story, paging(outputs=[page()]))
    assert commits == [[OutputProposed, OutputAttempted], [OutputDelivered]]


def test_a_plain_function_delivers():
    delivered = []

    async def deliver(view):
        delivered.append(view.payload)

    app = app_of(Proposing(outputs=[page()]), {"pager": deliver})
    life, _ = play(ends, app)
    assert (delivered, outcomes(life)) == ([PAGE], ["delivered"])


def test_eight_episodes_with_one_key_deliver_once():
    pager = Pager()

    async def story(scene: Scene):
        ids = [await scene.open(f"x{number}") for number in range(8)]
        return [await scene.ended(id_) for id_ in ids]

    lives, scene = play(story, paging(outputs=[page(dedupe_key="disk")], pager=pager))
    assert len(pager.views) == 1
    assert sorted(outcome for life in lives for outcome in outcomes(life)) == [
        "delivered",
        *["duplicate"] * 7,
    ]
    assert {life.end.status for life in lives} == {EndStatus.DONE}
    assert len(happened(scene, OutputProposed)) == 1


def test_an_adapter_is_opened_once_and_closed_with_its_node():
    pager = Pager()

    async def story(scene: Scene):
        await ends(scene)
        await scene.ended(await scene.open("x2"))
        scene.nodes["n1"].stop()
        await scene.clock.sleep(5.0)

    play(story, paging(outputs=[page()], pager=pager))
    assert (pager.opened, pager.closed) == (1, 1)


def test_no_more_deliveries_run_at_a_time_than_the_route_allows():
    now, most = 0, 0

    async def deliver(view):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(1.0)
        now -= 1

    outputs = [page() for _ in range(6)]
    app = app_of(Proposing(outputs=outputs), {"pager": Route(deliver, max_concurrent=2)})
    life, _ = play(ends, app)
    assert (most, outcomes(life)) == (2, ["delivered"] * 6)


def test_deliveries_begin_no_faster_than_the_route_allows():
    began = []

    async def deliver(view):
        began.append(asyncio.get_running_loop().time())

    outputs = [page() for _ in range(5)]
    app = app_of(Proposing(outputs=outputs), {"pager": Route(deliver, rate_per_s=2)})
    life, _ = play(ends, app)
    assert outcomes(life) == ["delivered"] * 5
    gaps = [later - earlier for earlier, later in pairwise(began)]
    assert min(gaps) > 0.4


# Failures.


def test_what_fails_for_now_is_tried_again_with_the_same_key_until_it_is_delivered():
    pager = Pager(busy(), busy())
    life, scene = play(ends, paging(outputs=[page()], pager=pager))
    assert outcomes(life) == ["delivered"]
    assert ([view.attempt for view in pager.views], len(pager.keys)) == ([1, 2, 3], 1)
    assert len(life.of(EpisodeDeferred)) == 2
    assert not scene.letters


def test_nobody_has_an_episode_whose_output_is_to_be_delivered_later():
    pager = Pager(busy(retry_after_s=600))

    async def story(scene: Scene):
        id_ = await scene.open()

        async def is_deferred() -> bool:
            return (await scene.life(id_)).episode.status is Status.DELIVERING

        await scene.until(is_deferred)
        await scene.clock.sleep(60.0)
        held = claims(scene.ports)
        return held, await scene.ended(id_)

    (held, life), _ = play(story, paging(outputs=[page()], pager=pager))
    assert held == []
    assert outcomes(life) == ["delivered"]


def test_a_receiver_says_when_to_try_again():
    pager = Pager(busy(retry_after_s=600))
    _, scene = play(ends, paging(outputs=[page()], pager=pager))
    (postponed,) = happened(scene, OutputPostponed)
    first, second = (
        record.commit.at
        for record in asyncio.run(scene.records(pager.views[0].output_key))
        if any(isinstance(event, OutputAttempted) for event in record.commit.events)
    )
    assert (second - first).total_seconds() > 590
    assert postponed.error_class == "busy"


def test_a_permanent_failure_is_a_dead_letter_at_once():
    pager = Pager(broken())
    life, scene = play(ends, paging(outputs=[page()], pager=pager))
    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "all_outputs_failed")
    (settled,) = life.end.outputs
    assert (settled.outcome, settled.error_class) == ("failed", "gone")
    (letter,) = scene.letters
    assert (letter.reason, letter.episode_id) == (
        "output_failed",
        life.episode.opened.episode_id,
    )
    assert "gone: for good" in letter.detail
    assert len(pager.views) == 1


def test_attempts_run_out():
    pager = Pager(*[busy()] * 9)
    route = lambda adapter: Route(adapter, retries=Retries(attempts_max=3))  # noqa: E731
    life, scene = play(ends, paging(outputs=[page()], pager=pager, route=route))
    assert (outcomes(life), len(pager.views), len(scene.letters)) == (["failed"], 3, 1)


def test_an_adapter_that_takes_too_long_is_cut_off_and_asked_again():
    pager = Pager()

    async def accepts_and_hangs(view):
        await asyncio.sleep(3_600)

    pager.plan = [accepts_and_hangs]
    life, scene = play(ends, paging(outputs=[page()], pager=pager))
    assert (outcomes(life), len(pager.keys)) == (["delivered"], 1)
    assert [each.error_class for each in happened(scene, OutputPostponed)] == ["delivery_timeout"]


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (KeyError("boom"), "crash"),
        (ConnectionError("refused"), "receiver_unavailable"),
        (TimeoutError(), "delivery_timeout"),
        (DeliveryFailed("rate_limited", retry_after_s=float("nan")), "rate_limited"),
    ],
)
def test_whatever_an_adapter_raises_is_tried_again(error, error_class):
    life, scene = play(ends, paging(outputs=[page()], pager=Pager(error)))
    assert outcomes(life) == ["delivered"]
    assert [each.error_class for each in happened(scene, OutputPostponed)] == [error_class]


@pytest.mark.parametrize("returned", [7, {"id": 7}, object()])
def test_what_an_adapter_returns_that_is_no_text_is_said_at_once(returned):
    pager = Pager()

    async def returns(view):
        return returned

    pager.plan = [returns]
    life, scene = play(ends, paging(outputs=[page()], pager=pager))
    assert [each.error_class for each in life.end.outputs] == ["bad_adapter"]
    assert f"it returned a {type(returned).__name__}; return what" in scene.letters[0].detail
    assert len(pager.views) == 1


def test_what_an_exception_of_an_adapter_says_stays_on_its_node():
    def secretive() -> Exception:
        return ValueError("https://hooks.example/T0/s3cret")

    route = lambda adapter: Route(adapter, retries=Retries(attempts_max=2))  # noqa: E731
    app = paging(outputs=[page()], pager=Pager(secretive(), secretive()), route=route)
    with capture_logs() as logs:
        _, scene = play(ends, app)
    (postponed,) = happened(scene, OutputPostponed)
    (letter,) = scene.letters
    for detail in (postponed.error_detail, letter.detail):
        assert detail.endswith("\nValueError")
        assert "in deliver" in detail
        assert "s3cret" not in detail
    assert "s3cret" not in str(scene.told)
    kept = [each for each in logs if "s3cret" in str(each)]
    assert {each["event"] for each in kept} == {"an adapter raised"}


def test_the_world_is_not_told_the_words_of_a_failure():
    _, scene = play(ends, paging(outputs=[page()], pager=Pager(broken())))
    (said,) = [said for name, said in scene.told if name == "output.failed"]
    assert (said["error_class"], "error_detail" in said) == ("gone", False)


def test_each_attempt_is_logged_with_what_came_of_it():
    with capture_logs() as logs:
        play(ends, paging(outputs=[page(dedupe_key="disk")], pager=Pager(busy())))
    first, second = [each for each in logs if each.get("adapter") == "pager"]
    assert (first["event"], first["log_level"]) == ("not delivered; tried again", "warning")
    assert (first["output_key"], first["attempt"], first["error_class"]) == ("disk", 1, "busy")
    assert first["retry_at"].startswith("20")
    assert (second["event"], second["log_level"]) == ("delivered", "info")
    assert (second["output_key"], second["attempt"]) == ("disk", 2)


def test_an_output_waits_for_a_node_whose_app_has_its_adapter():
    """As in a rolling deploy: the old node gets what the new strategy has proposed."""
    pager = Pager("r-1")
    strategy = Proposing(outputs=[page(dedupe_key="disk")])

    async def story(scene: Scene):
        id_ = await scene.open()

        async def is_put_off() -> bool:
            return (await scene.output("disk")).lacks > 0

        await scene.until(is_put_off)
        async with scene.node("n2", app=app_of(strategy, {"pager": pager})):
            return await scene.ended(id_)

    with capture_logs() as logs:
        life, scene = play(story, app_of(strategy, {}))
    assert (outcomes(life), len(pager.views), scene.letters) == (["delivered"], 1, [])
    told = [each for each in logs if each.get("error_class") == "no_adapter"]
    assert [each["event"] for each in told] == ["not delivered; tried again"]


@pytest.mark.parametrize("skew_s", [-90.0, 90.0])
def test_a_node_without_the_adapter_puts_it_off_by_the_clock_of_the_server(skew_s):
    async def story(scene: Scene):
        await scene.open()
        await scene.clock.sleep(30)

    _, scene = play(story, paging(outputs=[propose_output("fax", {})]), skew_s=skew_s)
    assert 1 <= len(happened(scene, OutputPostponed)) <= 6


def test_an_adapter_that_no_node_has_fails_after_an_hour():
    async def story(scene: Scene):
        id_ = await scene.open()
        await scene.clock.sleep(LACKS_MAX * LACKED_PAUSE_S_MAX)
        return await scene.ended(id_)

    life, scene = play(story, paging(outputs=[propose_output("fax", {})]))
    (settled,) = life.end.outputs
    assert (settled.outcome, settled.error_class) == ("failed", "no_adapter")
    assert len(scene.letters) == 1
    put_off = happened(scene, OutputPostponed)
    assert all(each.error_detail.startswith("the app has no output 'fax'") for each in put_off)
    assert len(put_off) == LACKS_MAX


@pytest.mark.parametrize(
    ("plan", "status", "error_class"),
    [
        ((), EndStatus.DONE, ""),
        ((broken(),), EndStatus.PARTIALLY_FAILED, ""),
        ((broken(), broken()), EndStatus.FAILED, "all_outputs_failed"),
    ],
)
def test_an_episode_ends_as_its_outputs_do(plan, status, error_class):
    life, _ = play(ends, paging(outputs=[page(), page()], pager=Pager(*plan)))
    assert (life.end.status, life.end.error_class) == (status, error_class)


def test_a_dry_run_delivers_nothing_and_tells_nothing():
    pager = Pager()
    app = paging(output("pager", PAGE), outputs=[page(requires_approval=True)], pager=pager)

    async def story(scene: Scene):
        return await scene.ended(
            await fire(scene.ports, "worker", "thing", by="ann", key="k", dry_run=True)
        )

    life, scene = play(story, app)
    assert outcomes(life) == ["dry_run", "dry_run"]
    assert (life.end.status, life.seen[0]["status"]) == (EndStatus.DONE, "dry_run")
    assert (pager.views, scene.told, happened(scene, OutputProposed)) == ([], [], [])


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_dry_run_fails_at_once_for_want_of_an_adapter_as_a_live_one_does_in_the_end(dry_run):
    app = paging(output("fax", {}), outputs=[propose_output("fax", {})])

    async def story(scene: Scene):
        id_ = await fire(scene.ports, "worker", "thing", by="ann", key="k", dry_run=dry_run)
        await scene.clock.sleep(LACKS_MAX * LACKED_PAUSE_S_MAX)
        return await scene.ended(id_)

    with capture_logs() as logs:
        life, _ = play(story, app)
    assert [(each.outcome, each.error_class) for each in life.end.outputs] == (
        [("failed", "no_adapter")] * 2
    )
    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "all_outputs_failed")
    assert life.end.error_detail == "2 could not be delivered: no_adapter"
    assert life.seen[0]["status"] == ("failed" if dry_run else "proposed")
    assert [each for each in logs if "has no output 'fax'" in str(each)] or not dry_run


# What the world is told.


def test_the_world_is_told_of_proposal_and_delivery():
    life, scene = play(ends, paging(outputs=[page()], pager=Pager("r-1")))
    news = dict(scene.told)
    asked, said = news["output.proposed"], news["output.delivered"]
    assert asked["requires_approval"] is False
    assert (said["delivered_ref"], said["attempts"]) == ("r-1", 1)
    assert said["output_key"] == life.end.outputs[0].output_key
    assert said["episode_id"] == life.episode.opened.episode_id


def test_an_episode_that_is_tried_again_is_not_said_to_have_started_again():
    life, scene = play(ends, paging(outputs=[page()], pager=Pager(busy())))
    assert len(life.of(EpisodeStarted)) == 2
    assert told_attempts(scene, life) == [f"{life.episode.opened.episode_id}.started.1"]


# Approval.

ASKING = {"requires_approval": True, "summary": "page them?"}


def gate(verdict, **said: object):
    """Return the story of an episode whose output somebody decides on."""

    async def story(scene: Scene):
        id_ = await scene.open()
        await scene.reached("disk", OutputStatus.AWAITING_APPROVAL)
        await decide(scene.ports, "disk", verdict, kind="output", by="ann", **said)
        return await scene.ended(id_)

    return story


def test_nothing_is_delivered_before_somebody_approves_it():
    pager = Pager()

    async def story(scene: Scene):
        id_ = await scene.open()
        await scene.reached("disk", OutputStatus.AWAITING_APPROVAL)
        await scene.clock.sleep(3_600.0)
        return (await scene.life(id_)).episode.status, list(pager.views)

    (status, views), _ = play(
        story, paging(outputs=[page(dedupe_key="disk", **ASKING)], pager=pager)
    )
    assert (status, views) == (Status.DELIVERING, [])


def test_what_is_approved_is_delivered():
    app = paging(outputs=[page(dedupe_key="disk", **ASKING)])
    life, scene = play(gate("approve", reason="go"), app)
    assert (outcomes(life), life.end.status) == (["delivered"], EndStatus.DONE)
    assert [name for name, _ in scene.told] == [
        "output.proposed", "output.approved", "output.delivered",
    ]  # fmt: skip
    assert scene.told[1][1]["by"] == "ann"
    assert scene.told[0][1]["summary"] == "page them?"


def test_who_approves_an_output_may_change_what_is_delivered():
    pager = Pager(busy())
    app = paging(outputs=[page(dedupe_key="disk", **ASKING)], pager=pager)
    life, _ = play(gate("approve", plan={"text": "calm down"}), app)

    assert outcomes(life) == ["delivered"]
    assert [view.payload for view in pager.views] == [{"text": "calm down"}] * 2


def test_the_log_has_what_was_proposed_and_what_was_approved_with_their_hashes():
    edited = {"text": "calm down"}

    async def story(scene: Scene):
        await gate("approve", plan=edited)(scene)
        return [
            event
            for record in await scene.ports.log.read(scene.ports.stack.output("disk"))
            for event in record.commit.events
        ]

    events, _ = play(story, paging(outputs=[page(dedupe_key="disk", **ASKING)]))
    proposed, approved = events[:2]
    assert proposed.approval.plan_hash == plan_hash(proposed.payload)
    assert unraw(approved.edited_payload) == edited != unraw(proposed.payload)
    assert approved.edited_hash == plan_hash(raw(edited)) != proposed.approval.plan_hash


def test_what_is_rejected_is_not_delivered_and_counts_neither_way():
    pager = Pager()
    app = paging(outputs=[page(dedupe_key="disk", **ASKING)], pager=pager)
    life, scene = play(gate("deny"), app)
    assert (outcomes(life), life.end.status, pager.views) == (["rejected"], EndStatus.DONE, [])
    assert [name for name, _ in scene.told] == ["output.proposed", "output.rejected"]


@pytest.mark.parametrize(
    ("on_expiry", "outcome"), [("deny", "rejected"), ("fail", "failed"), ("approve", "delivered")]
)
def test_what_nobody_decides_expires(on_expiry, outcome):
    intent = page(dedupe_key="disk", **ASKING, expires_s=300, on_expiry=on_expiry)
    life, scene = play(ends, paging(outputs=[intent]))
    assert outcomes(life) == [outcome]
    assert all(each.is_expiry for each in happened(scene, OutputRejected))


EXPIRING = {**ASKING, "expires_s": 300, "on_expiry": "fail"}


def test_what_fails_for_want_of_approval_counts_and_is_a_dead_letter():
    life, scene = play(ends, paging(outputs=[page(dedupe_key="disk", **EXPIRING)]))
    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "all_outputs_failed")
    assert [each.error_class for each in life.end.outputs] == ["approval_expired"]
    assert "approval_expired: nobody decided by" in scene.letters[0].detail
    assert [name for name, _ in scene.told] == ["output.proposed", "output.failed"]


def test_an_output_of_a_failed_episode_that_nobody_approves_is_a_dead_letter_too():
    class Fails(Proposing):
        def converge(self, state, ctx):
            raise ZeroDivisionError

    pager = Pager()
    app = app_of(Fails(output("pager", PAGE, dedupe_key="disk", **EXPIRING)), {"pager": pager})

    async def story(scene: Scene):
        life = await ends(scene)
        await scene.reached("disk", OutputStatus.FAILED)
        await scene.quiet()
        return life

    _, scene = play(story, app)
    assert (len(scene.letters), pager.views) == (1, [])
    assert [name for name, _ in scene.told] == ["output.proposed", "output.failed"]


def test_people_are_asked_once_more_before_what_they_left_is_tried_again():
    pager = Pager()
    app = paging(outputs=[page(dedupe_key="disk", **EXPIRING)], pager=pager)

    async def story(scene: Scene):
        await ends(scene)
        await by_key(scene)
        await scene.reached("disk", OutputStatus.AWAITING_APPROVAL)
        await scene.clock.sleep(200.0)
        assert pager.views == []
        await decide(scene.ports, "disk", kind="output")
        await scene.reached("disk", OutputStatus.DELIVERED)
        await scene.quiet()

    play(story, app)
    assert len(pager.views) == 1


def test_what_people_rejected_is_rejected_for_the_next_episode_too():
    pager = Pager()
    rejecting = gate("deny")

    async def story(scene: Scene):
        await rejecting(scene)
        return await scene.ended(await scene.open("x2"))

    app = paging(outputs=[page(dedupe_key="disk", **ASKING)], pager=pager)
    life, _ = play(story, app)
    assert (outcomes(life), life.end.status, pager.views) == (["rejected"], EndStatus.DONE, [])


def test_people_are_reminded_until_they_decide():
    intent = page(dedupe_key="disk", **ASKING, expires_s=35, remind_every_s=10)
    _, scene = play(ends, paging(outputs=[intent]))
    reminders = [said["number"] for name, said in scene.told if name == "output.reminder"]
    assert reminders == [1, 2, 3]


def test_being_reminded_costs_the_journal_nothing():
    intent = page(dedupe_key="disk", **ASKING, expires_s=100, remind_every_s=10)
    life, _ = play(ends, paging(outputs=[intent]))
    assert len(life.of(EpisodeStarted)) == 2


def test_what_has_not_failed_is_not_tried_again():
    async def story(scene: Scene):
        await scene.open()
        await scene.reached("disk", OutputStatus.AWAITING_APPROVAL)
        with pytest.raises(Refused, match="only what has failed"):
            await retry_output(scene.ports, "disk", by="ann")

    play(story, paging(outputs=[page(dedupe_key="disk", **ASKING)]))


def test_an_output_of_a_step_may_be_approved_while_its_episode_runs():
    going_on = asyncio.Event()

    class Waits(Proposing):
        async def handle_result(self, state, step, result):
            if step.kind.value == "observation":
                await going_on.wait()
            return super().handle_result(state, step, result)

    strategy = Waits(output("pager", PAGE, dedupe_key="disk", **ASKING), observe(1))
    app = app_of(strategy, {"pager": Pager()})

    async def story(scene: Scene):
        id_ = await scene.open()
        await scene.reached("disk", OutputStatus.AWAITING_APPROVAL)
        await decide(scene.ports, "disk", kind="output")
        await scene.reached("disk", OutputStatus.PROPOSED)
        going_on.set()
        return await scene.ended(id_)

    life, _ = play(story, app)
    assert outcomes(life) == ["delivered"]
    assert life.seen[0] == {"output_key": "disk", "status": "awaiting_approval"}


# Outputs of steps.


def test_an_output_of_a_step_is_delivered_before_the_next_one():
    pager = Pager()
    app = paging(output("pager", PAGE), observe(1), pager=pager)
    life, _ = play(ends, app)
    (announced,) = life.of(StepAnnounced)
    assert announced.tool_name == "output.pager"
    assert announced.output_key.startswith(f"{life.episode.opened.episode_id}.turn.1.")
    assert announced.idempotency_key == pager.views[0].idempotency_key
    assert life.seen[0] == {"output_key": announced.output_key, "status": "delivered"}
    assert outcomes(life) == ["delivered"]


def test_a_step_whose_output_failed_says_why():
    life, _ = play(ends, paging(output("pager", PAGE), pager=Pager(broken())))
    assert life.seen[0]["status"] == "failed"
    assert life.seen[0]["error_class"] == "gone"
    assert life.end.status is EndStatus.FAILED


def test_what_a_step_could_not_deliver_is_delivered_before_the_episode_ends():
    pager = Pager(busy(), busy())
    life, _ = play(ends, paging(output("pager", PAGE), pager=pager))
    assert life.seen[0]["status"] == "proposed"
    assert (outcomes(life), len(pager.keys)) == (["delivered"], 1)


def test_the_second_attempt_of_a_step_waits_for_the_pause_and_for_what_the_receiver_asks():
    async def attempted_s(scene: Scene):
        await ends(scene)
        at = [
            record.commit.at
            for record in await scene.records("disk")
            if any(isinstance(event, OutputAttempted) for event in record.commit.events)
        ]
        return (at[1] - at[0]).total_seconds()

    action = output("pager", PAGE, dedupe_key="disk")
    pause_s, _ = play(attempted_s, paging(action, pager=Pager(busy())))
    asked_s, _ = play(attempted_s, paging(action, pager=Pager(busy(retry_after_s=0.9))))
    assert pause_s >= 0.45
    assert asked_s >= 0.8


def test_a_strategy_that_is_done_waits_for_the_outputs_of_its_steps():
    class IsDone(Proposing):
        def next_step(self, state, ctx):
            return self.plan[state.done] if state.done < len(self.plan) else Done()

    pager = Pager(busy())
    app = app_of(IsDone(output("pager", PAGE)), {"pager": pager})
    life, _ = play(ends, app)
    assert (outcomes(life), len(pager.views)) == (["delivered"], 2)


def test_an_episode_that_fails_leaves_its_outputs_to_be_delivered():
    class Fails(Proposing):
        def converge(self, state, ctx):
            raise ZeroDivisionError

    pager = Pager(busy())
    app = app_of(Fails(output("pager", PAGE, dedupe_key="disk")), {"pager": pager})

    async def story(scene: Scene):
        life = await ends(scene)
        await scene.reached("disk", OutputStatus.DELIVERED)
        await scene.quiet()
        return life, await scene.life(life.episode.opened.episode_id)

    (at_end, later), scene = play(story, app)
    assert at_end.end.error_class == "crash"
    assert later == at_end
    assert len(pager.views) == 2
    assert [name for name, _ in scene.told].count("output.delivered") == 1


# Canceling.


def test_canceling_cancels_what_is_not_delivered():
    pager = Pager("r-1", busy(retry_after_s=600))
    app = paging(outputs=[page(dedupe_key="a"), page(dedupe_key="b")], pager=pager, finds=True)

    async def story(scene: Scene):
        id_ = await scene.open()

        async def is_deferred() -> bool:
            return (await scene.life(id_)).episode.status is Status.DELIVERING

        await scene.until(is_deferred)
        await cancel(scene.ports, "worker", id_, by="bob", reason="not any more")
        life = await scene.ended(id_)
        await scene.quiet()
        return life, await scene.ports.timers.pending("worker", "attend", id_)

    (life, timer), scene = play(story, app)
    assert (life.end.status, life.end.error_class) == (EndStatus.CANCELED, "canceled")
    assert sorted(outcomes(life)) == ["canceled", "delivered"]
    assert [each.outcome for each in life.end.findings] == ["raised"]
    (canceled,) = happened(scene, OutputCanceled)
    assert canceled.reason == "by bob: not any more"
    assert (len(pager.views), timer) == (2, None)
    assert [name for name, _ in scene.told].count("output.canceled") == 1


def test_nothing_is_delivered_for_an_episode_that_is_canceled_before_its_outputs_are_tried():
    """Its findings are still being applied."""
    has_begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow(finding, episode):
        has_begun.set()
        await may_go_on.wait()

    pager = Pager()
    app = paging(outputs=[page(dedupe_key="disk")], pager=pager, finds=True, enrich=slow)

    async def story(scene: Scene):
        id_ = await scene.open()
        await has_begun.wait()
        await cancel(scene.ports, "worker", id_, by="bob")
        (run,) = scene.nodes["n1"]._running._attempts.values()

        async def is_known() -> bool:
            return run.canceled is not None

        await scene.until(is_known)
        may_go_on.set()
        return await scene.ended(id_)

    life, scene = play(story, app)
    assert (life.end.status, outcomes(life)) == (EndStatus.CANCELED, ["canceled"])
    assert (pager.views, len(happened(scene, OutputCanceled))) == ([], 1)


def test_canceling_an_episode_that_runs_cancels_what_its_steps_could_not_deliver():
    forever = asyncio.Event()

    class Waits(Proposing):
        async def handle_result(self, state, step, result):
            if step.kind.value == "observation":
                await forever.wait()
            return super().handle_result(state, step, result)

    pager = Pager(busy())
    strategy = Waits(output("pager", PAGE, dedupe_key="disk"), observe(1))
    app = app_of(strategy, {"pager": pager})

    async def story(scene: Scene):
        id_ = await scene.open()
        await scene.reached("disk", OutputStatus.PROPOSED)
        await scene.clock.sleep(1.0)
        await cancel(scene.ports, "worker", id_, by="bob")
        life = await scene.ended(id_)
        await scene.quiet()
        return life

    life, scene = play(story, app)
    assert (life.end.status, outcomes(life)) == (EndStatus.CANCELED, ["canceled"])
    assert (len(pager.views), len(happened(scene, OutputCanceled))) == (1, 1)


# By hand.


def failing_then(verb):
    """Return the story of an output that fails, and of what is done about it after the end."""

    async def story(scene: Scene):
        life = await ends(scene)
        await verb(scene)
        await scene.reached("disk", OutputStatus.DELIVERED)
        await scene.quiet()
        return life, await scene.life(life.episode.opened.episode_id)

    return story


async def by_key(scene: Scene):
    await retry_output(scene.ports, "disk", by="ann", reason="it is up again")


async def by_letter(scene: Scene):
    settler = DeadLetterRequests(scene.ports, scene.clock)
    (letter,) = scene.ports.log._streams["vigil-dead"].past(0)
    _, key = scene.ports.stack.aggregate_of(letter.subject)
    await settler.requeue(key, by="ann")


@pytest.mark.parametrize("verb", [by_key, by_letter])
def test_a_failed_output_is_tried_again_by_hand_after_the_end(verb):
    pager = Pager(broken(), busy())
    app = paging(outputs=[page(dedupe_key="disk")], pager=pager)
    (at_end, later), scene = play(failing_then(verb), app)
    assert later == at_end
    assert ([view.attempt for view in pager.views], len(pager.keys)) == ([1, 2, 3], 1)
    (retried,) = happened(scene, OutputRetried)
    assert retried.by == "ann"
    requeued = [each for each in scene.events(Stream.DEAD) if isinstance(each, DeadRequeued)]
    assert [each.by for each in requeued] == ["ann"]
    assert [name for name, _ in scene.told].count("output.delivered") == 1


def test_an_output_that_fails_again_is_another_dead_letter():
    pager = Pager(broken(), broken())

    async def story(scene: Scene):
        await ends(scene)
        await by_key(scene)

        async def has_failed_again() -> bool:
            return len(scene.letters) == 2

        await scene.until(has_failed_again)

    _, scene = play(story, paging(outputs=[page(dedupe_key="disk")], pager=pager))
    assert len(happened(scene, OutputFailed)) == 2


def test_what_others_propose_anew_settles_the_dead_letter_of_its_failure():
    async def story(scene: Scene):
        await ends(scene)
        second = await scene.open("x2")
        return second, await scene.ended(second)

    pager = Pager(broken())
    (second, life), scene = play(story, paging(outputs=[page(dedupe_key="disk")], pager=pager))
    assert outcomes(life) == ["delivered"]
    requeued = [each for each in scene.events(Stream.DEAD) if isinstance(each, DeadRequeued)]
    assert (len(scene.letters), requeued) == (
        1,
        [DeadRequeued(by="actor worker", episode_id=second)],
    )


def test_what_is_proposed_anew_and_waits_for_approval_leaves_no_letter_to_wait_too():
    async def story(scene: Scene):
        await ends(scene)
        await scene.open("x2")
        await scene.reached("disk", OutputStatus.AWAITING_APPROVAL)
        await scene.clock.sleep(1.0)

    asks = page(dedupe_key="disk", **ASKING, expires_s=20, on_expiry="fail")
    _, scene = play(story, paging(outputs=[asks]))
    settled = [type(each) for each in scene.events(Stream.DEAD)]
    assert settled == [DeadLettered, DeadRequeued]


def test_what_is_tried_again_before_the_episode_ends_counts_as_it_ends_then():
    pager = Pager(broken(), busy(retry_after_s=600))
    app = paging(outputs=[page(dedupe_key="disk"), page()], pager=pager)

    async def story(scene: Scene):
        id_ = await scene.open()

        async def is_deferred() -> bool:
            return (await scene.life(id_)).episode.status is Status.DELIVERING

        await scene.until(is_deferred)
        await by_key(scene)
        return await scene.ended(id_)

    life, _ = play(story, app)
    assert (outcomes(life), life.end.status) == (["delivered", "delivered"], EndStatus.DONE)


def test_what_is_put_off_is_tried_now_if_a_person_wants_that():
    pager = Pager(busy(retry_after_s=3_000))
    app = paging(outputs=[page(dedupe_key="disk")], pager=pager)

    async def story(scene: Scene):
        id_ = await scene.open()

        async def is_deferred() -> bool:
            return (await scene.life(id_)).episode.status is Status.DELIVERING

        await scene.until(is_deferred)
        await retry_output(scene.ports, "disk", by="ann", reason="it is up again")
        life = await scene.ended(id_)
        first, second = (
            record.commit.at
            for record in await scene.records("disk")
            if any(isinstance(event, OutputAttempted) for event in record.commit.events)
        )
        return life, (second - first).total_seconds()

    (life, gap_s), scene = play(story, app)
    assert (outcomes(life), len(pager.views), scene.letters) == (["delivered"], 2, [])
    assert gap_s < 60


# Crashes.


def crash_of(fatal: int, plan, **rest):
    """Return what a story left whose node died at its `fatal`-th chance."""
    pager = Pager(*plan)

    async def story(scene: Scene):
        life = await ends(scene)
        await scene.quiet()
        return life, await scene.life(life.episode.opened.episode_id)

    (at_end, later), scene = play(
        story, paging(pager=pager, finds=True, **rest), weather=Doom(fatal)
    )
    assert later == at_end, "nothing follows the end"
    return pager, later, scene


SHAPES = {
    "delivered": ((), {"outputs": [page(dedupe_key="disk")]}, ["delivered"]),
    "postponed": ((busy(),), {"outputs": [page(dedupe_key="disk")]}, ["delivered"]),
    "failed": ((broken(),), {"outputs": [page(dedupe_key="disk")]}, ["failed"]),
    "expired": (
        (),
        {"outputs": [page(dedupe_key="disk", **ASKING, expires_s=20, on_expiry="approve")]},
        ["delivered"],
    ),
}

CHANCES_MIN = 15
"""Fewer chances to die than any story has, so that the tests cannot pass idly."""

CHANCES_FROZEN = 40
"""Chances to stand still that are tried: by then the episode of one output has ended."""


@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_node_may_die_anywhere(shape):
    plan, rest, outcome = SHAPES[shape]
    _, life, expected = crash_of(0, plan, **rest)
    chances = expected.weather.chances
    assert (outcomes(life), chances > CHANCES_MIN) == (outcome, True)
    kinds = {subject.split(".")[1] for subject in expected.told_of} - {"dead"}
    assert kinds == {"episode", "finding", "output"}
    for fatal in moments(chances):
        pager, life, scene = crash_of(fatal, plan, **rest)
        assert len(pager.keys) == 1, fatal
        assert len(life.of(EpisodeFinished)) == 1, fatal
        if outcomes(life) != outcome:  # A plan is used up by an attempt that nobody knows of.
            assert shape == "failed", fatal
            assert outcomes(life) == ["delivered"], fatal
            continue
        assert len(scene.findings) == 1, fatal
        assert len(scene.letters) == (outcome == ["failed"]), fatal
        assert told_whoever_did_it(scene) == told_whoever_did_it(expected), fatal
        assert told_attempts(scene, life) == attempts(life), fatal
        assert claims(scene.ports) == [], fatal


def told_whoever_did_it(scene: Scene) -> dict[str, list[str]]:
    """Return the ids of what the world was told of each aggregate, in order, without attempts."""
    return {
        subject: [id_ for id_ in ids if not _is_of_an_attempt(id_)]
        for subject, ids in scene.told_of.items()
    }


def told_attempts(scene: Scene, life: Life) -> list[str]:
    """Return the ids under which the world was told of attempts at an episode, in order."""
    return [id_ for id_ in scene.told_of[life.records[0].subject] if _is_of_an_attempt(id_)]


def _is_of_an_attempt(id_: str) -> bool:
    return ".started." in id_ or ".claim_lost." in id_


def attempts(life: Life) -> list[str]:
    """Return the same as its journal has it: once only outputs are left, no start is told of."""
    id_, ids = life.episode.opened.episode_id, []
    held, is_left = 0, False
    for each in life.events:
        if isinstance(each, EpisodeStarted):
            ids += [f"{id_}.claim_lost.{held}"] if held else []
            ids += [] if is_left else [f"{id_}.started.{each.attempt}"]
            held = each.attempt
        elif isinstance(each, EpisodeDeferred):
            held, is_left = 0, True
    return ids


def test_a_node_may_die_anywhere_in_an_output_of_a_step():
    def crashed(fatal: int):
        pager = Pager(busy())

        async def story(scene: Scene):
            life = await ends(scene)
            await scene.quiet()
            return life

        life, scene = play(story, paging(output("pager", PAGE), pager=pager), weather=Doom(fatal))
        return pager, life, scene

    _, _, expected = crashed(0)
    assert expected.weather.chances > CHANCES_MIN
    for fatal in moments(expected.weather.chances):
        pager, life, scene = crashed(fatal)
        assert (len(pager.keys), outcomes(life)) == (1, ["delivered"]), fatal
        assert len(life.of(EpisodeFinished)) == 1, fatal
        assert len(happened(scene, OutputProposed)) == 1, fatal
        assert told_whoever_did_it(scene) == told_whoever_did_it(expected), fatal
        assert told_attempts(scene, life) == attempts(life), fatal


def test_a_node_that_dies_in_a_call_leaves_it_to_be_made_again_with_the_same_key():
    async def story(scene: Scene):
        async def accepts_and_dies(view):
            scene.kill()
            await asyncio.sleep(0)

        pager.plan = [accepts_and_dies]
        return await ends(scene)

    pager = Pager()
    life, _ = play(story, paging(outputs=[page()], pager=pager))
    assert ([view.attempt for view in pager.views], len(pager.keys)) == ([1, 2], 1)
    assert (outcomes(life), len(life.of(EpisodeFinished))) == (["delivered"], 1)


def test_a_last_attempt_that_was_cut_off_is_not_made_again():
    async def story(scene: Scene):
        async def dies(view):
            scene.kill()
            await asyncio.sleep(0)

        pager.plan = [dies]
        return await ends(scene)

    pager = Pager()
    route = lambda adapter: Route(adapter, retries=Retries(attempts_max=1))  # noqa: E731
    life, scene = play(story, paging(outputs=[page()], pager=pager, route=route))
    assert [each.error_class for each in life.end.outputs] == ["outcome_unknown"]
    assert (len(pager.views), len(scene.letters)) == (1, 1)


class Lapsing:
    """A claim that can be trusted once."""

    checks = 0

    def check(self):
        self.checks += 1
        if self.checks > 1:
            raise LeaseLost("episode.worker.e1", revision=1)


async def test_an_adapter_is_not_called_once_the_claim_has_lapsed(ports):
    pager = Pager()
    app = paging(pager=pager)
    context = crew_of(app, ports)
    context.permits.runs.turn(on=True)
    courier = delivery_of(context, attempt_of(opening(app), claim=Lapsing()), "pen")
    with pytest.raises(LeaseLost):
        await courier.carry("disk", page(), is_new=True)
    output_ = fold(await ports.log.read(ports.stack.output("disk")))
    assert (output_.attempts, output_.is_attempted, pager.views) == (1, True, [])


def test_a_node_that_stood_still_while_another_took_over_calls_no_adapter_any_more():
    """It may stand still anywhere, for longer than its lease."""

    def frozen(fatal: int):
        pager = Pager()

        async def story(scene: Scene):
            async with scene.node("n2"):
                life = await ends(scene)
                await scene.clock.sleep(60.0)
                return life

        app = paging(outputs=[page(dedupe_key="disk")], pager=pager)
        life, scene = play(story, app, weather=Frost(fatal))
        return pager, life, scene

    _, _, expected = frozen(0)
    assert expected.weather.chances > CHANCES_MIN
    for fatal in moments(CHANCES_FROZEN):
        pager, life, _ = frozen(fatal)
        attempts = [view.attempt for view in pager.views]
        assert attempts == list(range(attempts[0], attempts[0] + len(attempts))), fatal
        assert (len(pager.keys), outcomes(life)) == (1, ["delivered"]), fatal
        assert len(life.of(EpisodeFinished)) == 1, fatal


def test_a_node_that_stops_leaves_its_deliveries_to_another():
    entered, going_on = asyncio.Event(), asyncio.Event()

    async def slow(view):
        entered.set()
        await going_on.wait()

    pager = Pager(slow)
    route = lambda adapter: Route(adapter, max_concurrent=1)  # noqa: E731
    app = paging(outputs=[page() for _ in range(3)], pager=pager, route=route)

    async def story(scene: Scene):
        id_ = await scene.open()
        await entered.wait()
        scene.nodes["n1"].stop()
        going_on.set()
        async with scene.node("n2"):
            return await scene.ended(id_)

    life, _ = play(story, app)
    assert outcomes(life) == ["delivered"] * 3
    assert len(pager.views) == 3
