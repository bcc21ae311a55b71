"""What a cause does while an instance of its subject is open, also one that waits for people."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from engine.app.workflow_plan import spec_of
from engine.episodes.overlap.places import Places
from engine.operations.sweep import SweepVerdict, judge_instance
from engine.workflows import begin
from engine.workflows.begin import begin_instance
from engine.workflows.instance import fold_instance, held_subject
from engine.workflows.requests import cancel_workflow
from engine.workflows.start import start_of, started
from engine.workflows.subjects import UNBEGUN_PLACE_S, Subjects
from streams.errors import TooLarge
from streams.keys import start_key, workflow_subject_key
from streams.model.commands import Advance
from streams.model.events import WorkflowStarted
from streams.model.triggers import EventTrigger
from streams.ports.log import Commit, Recorded
from tests.moments import STRIDE
from tests.spec import EPOCH
from vigil import Actor, App, ConvergeResult, Workflow, event, manual
from vigil.testing import crash_everywhere, run

OVERLAPS = ("skip", "buffer_one", "cancel_other")
KEY = workflow_subject_key("review", "acme")


async def does(ctx, trigger):
    return ConvergeResult(summary="did")


async def undoes(ctx, trigger):
    return ConvergeResult(summary="undid")


def app_of(overlap, **options) -> App:
    """Return an app with a workflow of a step that can be undone, and one that asks people."""
    actor = Actor("worker")
    actor.expect("do", does, on=manual())
    actor.expect("undo", undoes, on=manual())
    review = Workflow(
        "review", on=event("client.changed"), subject_key="client", overlap=overlap, **options
    )
    review.step("first", "worker", "do", compensate=("worker", "undo"))
    review.step("then", "worker", "do", depends_on=["first"], requires_approval=True)
    return App(actors=[actor], workflows=[review])


async def happens(vigil, number, *, client="acme") -> None:
    await vigil.publish("client.changed", {"client": client, "n": number}, id=f"x{number}")
    await vigil.run_until_idle()


async def approve(vigil) -> None:
    await vigil.approve(by="ann")
    await vigil.run_until_idle()


def seen(vigil) -> list[str]:
    """Return how the instances are, in the order in which they began."""
    return [each.status for each in vigil.workflows(name="review")]


def steps(vigil) -> list[dict[str, str]]:
    return [each.steps for each in vigil.workflows(name="review")]


WAITING = {"first": "pending", "then": "pending"}


async def test_with_allow_every_cause_begins_an_instance():
    async with run(app_of("allow")) as vigil:
        for number in range(3):
            await happens(vigil, number)
        assert seen(vigil) == ["blocked"] * 3


async def test_with_skip_causes_start_nothing_while_an_instance_waits():
    async with run(app_of("skip")) as vigil:
        for number in range(3):
            await happens(vigil, number)
        assert seen(vigil) == ["blocked", "canceled", "canceled"]
        first, *others = vigil.workflows(name="review")
        assert {each.error_class for each in others} == {"overlap"}
        assert {each.error_detail for each in others} == {f"instance {first.id} was not over"}
        assert [each.steps for each in others] == [{}, {}]
        await approve(vigil)
        await happens(vigil, 3)
        assert seen(vigil) == ["done", "canceled", "canceled", "blocked"]


async def test_with_buffer_one_the_first_of_them_goes_on_after_the_end():
    async with run(app_of("buffer_one")) as vigil:
        for number in range(4):
            await happens(vigil, number)
        refused = ["canceled", "canceled"]
        assert seen(vigil) == ["blocked", "running", *refused]
        assert steps(vigil)[1] == WAITING
        await approve(vigil)
        assert seen(vigil) == ["done", "blocked", *refused]
        await happens(vigil, 4)
        await approve(vigil)
        assert seen(vigil) == ["done", "done", *refused, "blocked"]


async def test_with_cancel_other_the_newest_goes_on_once_the_others_are_undone():
    async with run(app_of("cancel_other")) as vigil:
        for number in range(3):
            await happens(vigil, number)
        assert seen(vigil) == ["canceled", "canceled", "blocked"]
        undone = [each for each in vigil.episodes() if each.expectation == "undo"]
        assert len(undone) == 2, "both had done their first step"
        await approve(vigil)
        assert seen(vigil)[-1] == "done"


@pytest.mark.parametrize("overlap", OVERLAPS)
async def test_other_subjects_do_not_matter(overlap):
    async with run(app_of(overlap)) as vigil:
        await happens(vigil, 0)
        await happens(vigil, 1, client="globex")
        assert seen(vigil) == ["blocked", "blocked"]


@pytest.mark.parametrize("overlap", OVERLAPS)
async def test_nothing_of_a_subject_is_kept_once_all_has_ended(overlap):
    async with run(app_of(overlap)) as vigil:
        await happens(vigil, 0)
        await happens(vigil, 1)
        while "blocked" in seen(vigil):
            await approve(vigil)
        assert await vigil.ports.gates.get(KEY) is None


async def test_one_that_waits_can_be_canceled_and_the_next_one_waits_in_its_place():
    async with run(app_of("buffer_one")) as vigil:
        await happens(vigil, 0)
        await happens(vigil, 1)
        _, waiting = vigil.workflows(name="review")
        await cancel_workflow(vigil.ports, waiting.id, by="ann")
        await vigil.run_until_idle()
        assert seen(vigil) == ["blocked", "canceled"]
        await happens(vigil, 2)
        assert seen(vigil) == ["blocked", "canceled", "running"]
        await approve(vigil)
        assert seen(vigil) == ["done", "canceled", "blocked"]


async def test_the_time_that_one_waits_counts_against_its_timeout():
    async with run(app_of("buffer_one", timeout_s=60.0)) as vigil:
        await happens(vigil, 0)
        await vigil.advance(seconds=30.0)
        await happens(vigil, 1)
        await approve(vigil)
        await vigil.advance(seconds=29.0)
        assert seen(vigil) == ["done", "blocked"]
        await vigil.advance(seconds=31.0)
        assert seen(vigil) == ["done", "failed"]


async def test_one_behind_an_instance_that_never_begins_goes_on_after_a_while():
    """The other one's starter put the key and died for good."""
    async with run(app_of("buffer_one")) as vigil:
        gates = vigil.ports.gates
        await gates.put(start_key("never"), b"", ttl_s=UNBEGUN_PLACE_S)
        await gates.put(KEY, msgspec.json.encode(Places(holder="never")), after=0)
        await happens(vigil, 1)
        assert steps(vigil) == [WAITING]
        await vigil.advance(seconds=UNBEGUN_PLACE_S + 120.0)
        assert seen(vigil) == ["blocked"]


def beginning(app, number) -> WorkflowStarted:
    """Return the first event of the instance of an event."""
    trigger = EventTrigger(
        event_id=f"x{number}",
        event_type="client.changed",
        payload={"client": "acme", "n": number},
        entity_id="acme",
    )
    spec = spec_of(app.workflows["review"], app.actors)
    return started(spec, start_of(spec.name, trigger, trigger.event_id, stack="vigil"))


async def test_one_that_was_displaced_before_it_began_ends_as_canceled():
    """Its starter was frozen between the key and the first commit."""
    app = app_of("cancel_other")
    async with run(app) as vigil:
        subjects, held = Subjects(vigil.ports), held_subject(beginning(app, 0))
        await happens(vigil, 0)
        late = await subjects.take(beginning(app, 1), held)
        await happens(vigil, 2)
        await begin_instance(vigil.ports, late, at=vigil.now)
        await vigil.run_until_idle()
        assert sorted(seen(vigil)) == ["blocked", "canceled", "canceled"]
        assert vigil.workflow(late.instance_id).status == "canceled"


async def test_a_cause_that_was_displaced_displaces_nothing_when_it_comes_again():
    app = app_of("cancel_other")
    async with run(app) as vigil:
        subjects, held = Subjects(vigil.ports), held_subject(beginning(app, 0))
        await happens(vigil, 0)
        await subjects.take(beginning(app, 1), held)
        newest = await subjects.take(beginning(app, 2), held)
        again = await subjects.take(beginning(app, 1), held)
        for each in (newest, again):
            await begin_instance(vigil.ports, each, at=vigil.now)
        await vigil.run_until_idle()
        assert vigil.workflow(again.instance_id).status == "canceled"
        assert vigil.workflow(newest.instance_id).status == "blocked"


async def test_a_cause_that_comes_again_has_its_place_once():
    app = app_of("cancel_other")
    async with run(app) as vigil:
        subjects, held = Subjects(vigil.ports), held_subject(beginning(app, 0))
        await happens(vigil, 0)
        waiting = await subjects.take(beginning(app, 1), held)
        assert await subjects.take(beginning(app, 1), held) == waiting
        await begin_instance(vigil.ports, waiting, at=vigil.now)
        await happens(vigil, 2)
        assert await subjects.take(beginning(app, 1), held) == beginning(app, 1), "displaced"
        assert seen(vigil) == ["canceled", "canceled", "blocked"]


async def test_if_the_key_is_lost_one_that_waits_stays_until_the_end_and_a_sweep_has_it_go_on():
    async with run(app_of("buffer_one")) as vigil:
        await happens(vigil, 0)
        await happens(vigil, 1)
        await vigil.ports.gates.delete(KEY)
        await sweep(vigil)
        assert steps(vigil)[1] == WAITING
        await approve(vigil)
        await vigil.advance(minutes=5)
        await sweep(vigil)
        assert seen(vigil) == ["done", "blocked"]


async def sweep(vigil) -> None:
    """Call a node to the instances, as `vigil recover` does."""
    for each in vigil.workflows(name="review"):
        advance = Advance(workflow="review", instance_id=each.id)
        await vigil.ports.commands.send(advance, id=f"sweep.{each.id}.{each.status}.{vigil.now}")
    await vigil.run_until_idle()


@pytest.mark.parametrize("overlap", OVERLAPS)
async def test_whoever_dies_at_any_moment_one_instance_at_a_time_goes_on(overlap):
    async def story(vigil) -> None:
        await happens(vigil, 0)
        await happens(vigil, 1)
        while "blocked" in seen(vigil):
            await approve(vigil)

    await crash_everywhere(lambda: run(app_of(overlap)), story, every=STRIDE)


class Meanwhile:
    """Gates in which something happens right before the key of the subject changes, once."""

    def __init__(self, gates, happening):
        self._gates, self._happening = gates, happening

    def __getattr__(self, name):
        return getattr(self._gates, name)

    async def put(self, key, value, **more):
        if key == KEY and self._happening is not None:
            happening, self._happening = self._happening, None
            await happening()
        return await self._gates.put(key, value, **more)


async def test_one_that_begins_while_another_one_takes_its_place_ends_as_canceled():
    app = app_of("cancel_other")
    async with run(app) as vigil:
        held = held_subject(beginning(app, 0))
        await happens(vigil, 0)
        late = await Subjects(vigil.ports).take(beginning(app, 1), held)

        async def begins():
            await begin_instance(vigil.ports, late, at=vigil.now)
            await vigil.run_until_idle()

        ports = dataclasses.replace(vigil.ports, gates=Meanwhile(vigil.ports.gates, begins))
        newest = await Subjects(ports).take(beginning(app, 2), held)
        await begin_instance(vigil.ports, newest, at=vigil.now)
        await vigil.run_until_idle()
        assert vigil.workflow(late.instance_id).status == "canceled"
        assert vigil.workflow(newest.instance_id).status == "blocked"


@pytest.mark.parametrize("is_holder", [True, False])
async def test_a_cause_of_an_instance_that_has_ended_displaces_nothing_when_it_comes_again(
    is_holder,
):
    """The key still names it: its worker died before it saw to that."""
    app = app_of("cancel_other")
    async with run(app) as vigil:
        subjects, over = Subjects(vigil.ports), beginning(app, 1)
        await happens(vigil, 0)
        (other,) = vigil.workflows(name="review")
        await begin_instance(vigil.ports, over, at=vigil.now)
        await cancel_workflow(vigil.ports, over.instance_id, by="ann")
        await vigil.run_until_idle()
        ids = (over.instance_id, other.id) if is_holder else (other.id, over.instance_id)
        places = Places(holder=ids[0], next=ids[1])
        await vigil.ports.gates.put(KEY, msgspec.json.encode(places))
        assert await subjects.take(over, held_subject(over)) == over
        await vigil.run_until_idle()
        assert vigil.workflow(other.id).status == "blocked"


async def test_a_busy_subject_is_told_by_who_holds_it_now():
    app = app_of("skip")
    async with run(app) as vigil:
        await happens(vigil, 0)
        (holder,) = vigil.workflows(name="review")
        await approve(vigil)
        await vigil.ports.gates.put(start_key("next"), b"", ttl_s=UNBEGUN_PLACE_S)
        places = Places(holder=holder.id, next="next")
        await vigil.ports.gates.put(KEY, msgspec.json.encode(places))
        busy = await Subjects(vigil.ports).take(beginning(app, 1), held_subject(beginning(app, 1)))
        assert busy.instance_id == "next"


async def test_one_that_is_to_be_canceled_and_never_begins_is_no_dead_letter():
    async with run(app_of("cancel_other")) as vigil:
        gates = vigil.ports.gates
        await gates.put(start_key("never"), b"", ttl_s=UNBEGUN_PLACE_S)
        await gates.put(KEY, msgspec.json.encode(Places(holder="never")), after=0)
        await vigil.publish("client.changed", {"client": "acme", "n": 1}, id="x1")
        await vigil.advance(hours=2)
        assert vigil.dead_letters() == []
        assert seen(vigil) == ["blocked"]


async def test_one_that_is_begun_after_its_place_has_lapsed_ends_as_canceled():
    """Its starter was frozen for three minutes, and was to hold the subject."""
    app = app_of("skip")
    async with run(app) as vigil:
        late = await Subjects(vigil.ports).take(beginning(app, 1), held_subject(beginning(app, 1)))
        await vigil.advance(seconds=UNBEGUN_PLACE_S + 1)
        await happens(vigil, 2)
        await begin_instance(vigil.ports, late, at=vigil.now)
        await vigil.run_until_idle()
        assert vigil.workflow(late.instance_id).status == "canceled"
        assert sorted(seen(vigil)) == ["blocked", "canceled"]


async def test_one_that_cannot_be_written_gives_its_place_back(monkeypatch):
    async def refuses(*_, **__):
        raise TooLarge("workflow", size_bytes=2, limit_bytes=1)

    async with run(app_of("skip")) as vigil:
        with monkeypatch.context() as patch:
            patch.setattr(begin, "begin_instance", refuses)
            await happens(vigil, 1)
        assert seen(vigil) == ["failed"]
        await happens(vigil, 2)
        assert seen(vigil) == ["failed", "blocked"]


def test_a_sweep_calls_one_that_waits_whatever_timer_it_has():
    app = app_of("buffer_one", timeout_s=86_400.0)
    held = msgspec.structs.replace(beginning(app, 1), held_by="other")
    commit = Commit(id="begin", at=EPOCH, events=(held,))
    instance = fold_instance([Recorded(subject="s", seq=1, commit=commit)])
    verdict = judge_instance(instance, (), is_armed=True, silent_s=60.0, stale_after_s=30.0)
    assert verdict is SweepVerdict.RECOVERED
