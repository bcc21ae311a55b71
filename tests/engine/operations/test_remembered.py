"""What gates remember follows from the log, for a bucket that was lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
import pytest
from msgspec.structs import replace

from engine.app.workflow_plan import START_EXPECTATION, starter_id
from engine.episodes.breakers.breaker import BreakerState
from engine.episodes.overlap import hold, places
from engine.episodes.overlap.places import Places
from engine.operations.remembered import Remembered
from engine.spending.window import Spent, spent_in
from engine.triggers.evaluate import cooldown_in
from engine.workflows.start import start_of, started
from streams.keys import (
    breaker_key,
    cooldown_key,
    ends_key,
    overlap_key,
    parked_key,
    workflow_subject_key,
)
from streams.model.children import ChildEnd
from streams.model.events import (
    BlockReason,
    BreakerReset,
    EndStatus,
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    Fork,
    Parked,
    Resolution,
    StepAnnounced,
    StepKind,
    StepRecorded,
    WorkflowFinished,
)
from streams.model.service_levels import LevelOutcome, ServiceLevel
from streams.model.triggers import Budget, EventTrigger, Mode
from streams.model.waits import OnExpiry, Wait
from streams.model.workflows import WorkflowSpec, WorkflowStatus
from streams.ports.domain_events import DomainEvent
from streams.ports.log import Commit, Recorded

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
DONE = EpisodeFinished(status=EndStatus.DONE)
STARTED = EpisodeStarted(attempt=1, node="n1")
SHED = EpisodeFinished(status=EndStatus.CANCELED, error_class="shed_oldest")
COOLDOWN = cooldown_key("a", "e", "web-1")
HOLD = overlap_key("a", "e", "web-1")
BREAKER = breaker_key("a", "e")


def opened(id_: str = "e1", **more) -> EpisodeOpened:
    trigger = EventTrigger(event_id=id_, event_type="x", payload={"k": "v"}, entity_id="web-1")
    return EpisodeOpened(
        episode_id=id_,
        actor_id="a",
        expectation_id="e",
        trigger=trigger,
        dedupe_key=id_,
        budget=Budget(),
        **more,
    )


class Past:
    """Commits and events, and what follows from them."""

    def __init__(self) -> None:
        self.remembered = Remembered()
        self._seq = 0

    def commit(self, subject: str, *events, ago_s: float = 0.0, id_: str = "c") -> Past:
        self._seq += 1
        commit = Commit(id=id_, at=NOW - timedelta(seconds=ago_s), events=events)
        record = Recorded(subject=f"s.{subject}", seq=self._seq, commit=commit)
        self.remembered.add(record, part="journal")
        return self

    def tell(self, what: str, *, ago_s: float = 0.0, **payload) -> Past:
        said = {"actor_id": "a", "expectation_id": "e", "episode_id": "p", "scope": "cluster"}
        at = NOW - timedelta(seconds=ago_s)
        event = DomainEvent(
            id="x", name=f"circuit_breaker.{what}", payload={**said, **payload}, seq=1, at=at
        )
        self.remembered.note(event)
        return self

    @property
    def keys(self) -> dict[str, tuple[bytes, int | None]]:
        return {key: (value, ttl_s) for key, value, ttl_s in self.remembered.keys(NOW)}

    @property
    def hold(self) -> hold.Hold | None:
        return hold.hold_in(self.keys.get(HOLD, (None, None))[0])

    @property
    def breaker(self) -> BreakerState | None:
        value, _ = self.keys.get(BREAKER, (None, None))
        return msgspec.json.decode(value, type=BreakerState) if value else None


def test_the_newest_opening_of_a_subject_rests_for_what_is_left_of_its_cooldown():
    past = Past().commit("episode.e1", opened(cooldown_s=60), STARTED, DONE, ago_s=50)
    past.commit("episode.e2", opened("e2", cooldown_s=60), ago_s=20)
    past.commit("episode.e0", opened("e0", cooldown_s=60), STARTED, DONE, ago_s=55)
    value, ttl_s = past.keys[COOLDOWN]
    assert (cooldown_in(value).episode_id, ttl_s) == ("e2", 40)
    assert cooldown_in(value).until == NOW + timedelta(seconds=40)


@pytest.mark.parametrize(
    ("life", "ago_s"),
    [
        ((opened(cooldown_s=60), STARTED, DONE), 61),
        ((opened(), STARTED, DONE), 1),
        ((opened(cooldown_s=60, mode=Mode.DRY_RUN), STARTED, DONE), 1),
        ((opened(cooldown_s=60), hold.unopened("held")), 1),
        ((opened(cooldown_s=60), SHED), 1),
        ((opened(cooldown_s=60, fork=Fork(episode_id="f", step_no=1, by="ann")), STARTED, DONE), 1),
    ],
)
def test_what_is_over_or_began_no_cooldown_rests_nothing(life, ago_s):
    assert COOLDOWN not in Past().commit("episode.e1", *life, ago_s=ago_s).keys


def test_an_open_episode_holds_its_subject_until_it_has_ended():
    past = Past().commit("episode.e1", opened(holds_subject=True))
    assert past.hold is not None
    assert past.hold.holder == hold.slim(opened(holds_subject=True))
    assert past.commit("episode.e1", DONE).hold is None
    assert Past().commit("episode.e1", opened()).hold is None


def test_an_episode_that_waits_follows_the_one_that_holds():
    past = Past().commit("episode.e1", opened(holds_subject=True), ago_s=9)
    past.commit("episode.e2", opened("e2", holds_subject=True, held_by="e1"), ago_s=5)
    assert past.hold is not None
    assert past.hold.places == Places(holder="e1", next="e2")
    past.commit("episode.e1", DONE)
    assert past.hold is not None
    assert past.hold.places == Places(holder="e2", follows="e1")


def test_the_newest_of_those_that_wait_has_the_place():
    """Of what it displaced, the end may not have come yet."""
    found = places.of_open([("e1", ""), ("e2", "e1"), ("e3", "e1")])
    assert found == Places(holder="e1", next="e3", displaced=("e2",))
    assert places.of_open([("e2", "e1"), ("e3", "e1")]) == Places(
        holder="e3", follows="e1", displaced=("e2",)
    )
    assert places.of_open([]) is None


def test_an_open_instance_holds_its_subject_and_rests_as_an_episode_does():
    spec = WorkflowSpec(name="w", steps=(), subject_key="client", overlap="buffer_one")
    asked = replace(
        start_of("w", opened().trigger, "k", stack="s", cooldown_s=60), instance_id="i1"
    )
    first = replace(started(spec, asked), subject="ann")
    past = Past().commit("workflow.i1", first, ago_s=9)
    past.commit("workflow.i2", replace(first, instance_id="i2", held_by="i1"), ago_s=8)
    key = workflow_subject_key("w", "ann")
    assert msgspec.json.decode(past.keys[key][0], type=Places) == Places(holder="i1", next="i2")
    value, ttl_s = past.keys[cooldown_key(starter_id("w"), START_EXPECTATION, "web-1")]
    assert (cooldown_in(value).episode_id, ttl_s) == ("i2", 52)

    for id_ in ("i1", "i2"):
        past.commit(f"workflow.{id_}", WorkflowFinished(status=WorkflowStatus.DONE))
    assert key not in past.keys


def test_a_parked_episode_is_heard_of_until_it_goes_on():
    until = NOW + timedelta(seconds=100)
    block = EpisodeBlocked(
        step_no=1,
        reason=BlockReason.NONDETERMINISTIC_REPLAY,
        fingerprint="",
        wait=Wait(ref="", expires_at=until, on_expiry=OnExpiry.FAIL),
        parked=Parked(number=1, how="differs", codes=("c",)),
    )
    past = Past().commit("episode.e1", opened()).commit("episode.e1", block)
    key = parked_key("a", "e1")
    assert past.keys[key] == (b"", 3_700)
    past.commit("episode.e1", EpisodeResolved(step_no=1, resolution=Resolution.RETRIED))
    assert key not in past.keys


def test_a_breaker_is_as_its_newest_public_event_says():
    past = Past().tell("opened", failures=["e1"], at=(NOW - timedelta(seconds=9)).isoformat())
    expected = BreakerState(status="open", failures=("e1",), opened_at=NOW - timedelta(seconds=9))
    assert past.breaker == expected
    past.tell("half_opened", ago_s=3)
    probing = replace(
        expected, status="half_open", probe="p", probe_since=NOW - timedelta(seconds=3)
    )
    assert past.breaker == probing
    assert past.tell("closed").breaker is None


def test_breakers_of_nodes_and_events_of_others_are_of_no_concern():
    assert Past().tell("opened", scope="node").breaker is None
    assert Past().tell("opened", failures="all of them").breaker is None
    assert Past().tell("opened", actor_id="no name").keys == {}
    assert Past().tell("opened", at="2030-01-01T00:00:00").breaker is None


@pytest.mark.parametrize(("ago_s", "status"), [(5, "closed"), (20, "open")])
def test_a_reset_closes_what_had_opened_before_it(ago_s, status):
    past = Past().tell("opened", ago_s=9)
    reset = BreakerReset(actor_id="a", expectation_id="e", by="ann")
    past.commit(f"order.{BREAKER}", reset, ago_s=ago_s, id_="order.1")
    assert past.breaker is not None
    assert (past.breaker.status, past.breaker.reset) == (status, "order.1")


def test_ends_count_again_and_changes_that_were_told_are_not():
    level = ServiceLevel(start_s=5, end_s=60)
    past = Past().commit("episode.e1", opened(service_level=level))
    past.commit("episode.e1", replace(DONE, service_level=LevelOutcome.FAILED))
    ((key, value, _),) = past.remembered.ends({"journal": 0})
    ends = msgspec.json.decode(value)
    assert (key, ends["outcomes"], ends["counted"]) == (ends_key("a", "e"), "f", {"journal": 2})
    assert len(ends["changes"]) == 1
    ((_, value, _),) = past.remembered.ends({"journal": 2})
    assert msgspec.json.decode(value)["changes"] == []


def request(path: str, usd: str) -> StepAnnounced:
    said = {"step_no": 1, "fingerprint": "f", "tool_name": "", "idempotency_key": "k"}
    return StepAnnounced(**said, path=path, reserved_usd=Decimal(usd))


def asked(path: str, usd: str | None, **more) -> StepRecorded:
    cost = None if usd is None else Decimal(usd)
    kind = StepKind.MODEL_REQUEST
    return StepRecorded(step_no=1, kind=kind, fingerprint="f", path=path, cost_usd=cost, **more)


def spent(past: Past) -> dict[str, Spent]:
    """Return what is spent in each window that is remembered, without the names of keys."""
    under = "spending."
    found = {
        key.removeprefix(under): value for key, (value, _) in past.keys.items() if under in key
    }
    return {key: spent_in(value) for key, value in found.items()}


def test_what_requests_have_cost_counts_in_the_windows_in_which_they_were_announced():
    past = Past()
    past.commit("episode.e1", opened(), STARTED, ago_s=90_000)
    past.commit("episode.e1", request("1", "0.90"), ago_s=3_601)
    past.commit("episode.e1", asked("1", "0.20"), DONE)
    past.commit("episode.e2", opened("e2"), asked("1", "0.05"), DONE)
    used = {
        "2030-01-01T12": Spent(used=Decimal("0.05")),
        "2030-01-01": Spent(used=Decimal("0.25")),
        "2030-01": Spent(used=Decimal("0.25")),
    }
    of_stack = {f"stack.{window}": each for window, each in used.items()}
    assert spent(past) == {**{f"actor.a.{name}": each for name, each in used.items()}, **of_stack}


def test_keys_of_what_is_spent_lapse_an_hour_after_their_windows():
    past = Past().commit("episode.e1", opened(), asked("1", "0.05"))
    assert past.keys["spending.stack.2030-01-01T12"][1] == 2 * 3_600


def test_what_is_announced_and_not_recorded_is_reserved():
    past = Past().commit("episode.e1", opened(), STARTED, request("1", "0.90"))
    past.commit("episode.e1", request("1", "0.80"), ago_s=0)
    assert spent(past)["actor.a.2030-01-01"] == Spent(reserved={"e1:1": Decimal("0.80")})


def test_a_request_of_unknown_cost_has_cost_what_was_reserved():
    past = Past().commit("episode.e1", opened(), request("1", "0.90"), asked("1", None))
    assert spent(past)["stack.2030-01-01"] == Spent(used=Decimal("0.90"))


def test_what_a_child_has_spent_counts_once():
    end = ChildEnd(episode_id="e1", usd=Decimal("0.05"))
    past = Past().commit("episode.e1", opened(), asked("1", "0.05"), DONE)
    past.commit("episode.p", opened("p"), asked("1", None, child=end), DONE)
    assert spent(past)["stack.2030-01-01"] == Spent(used=Decimal("0.05"))


def test_the_past_of_a_fork_was_not_spent_again():
    past = Past().commit("episode.e1", opened(), asked("1", "0.05"), DONE)
    fork = Fork(episode_id="e1", step_no=1, by="pat")
    past.commit("episode.f", opened("f", fork=fork), asked("1", "0.05"))
    past.commit("episode.f", asked("2", "0.01"), DONE)
    assert spent(past)["stack.2030-01-01"] == Spent(used=Decimal("0.06"))


def test_what_was_spent_before_this_month_is_over():
    past = Past().commit("episode.e1", opened(), asked("1", "0.05"), DONE, ago_s=86_400)
    assert spent(past) == {}
