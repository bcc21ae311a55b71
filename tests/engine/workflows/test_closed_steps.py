"""Steps whose workflow cannot begin: they wait, and everything else of their instance goes on."""

from __future__ import annotations

from msgspec.structs import replace

from engine.app.workflow import Workflow, retrying
from engine.workflows.effects import follow_up, wake_at
from engine.workflows.instance import CALLED_OFF, UNSTARTED
from engine.workflows.instance import after as folded
from engine.workflows.start import called_off
from engine.workflows.steps import end_of_instance, waiting
from streams.model.events import WorkflowFinished
from streams.model.workflows import StepOutcome, WorkflowStatus
from tests.engine.workflows.flows import cancel, decided, done, fails, flow, given, waits
from tests.spec import EPOCH

CLOSED = frozenset({"inner"})


def outer(*steps, **options) -> Workflow:
    """A workflow with `steps` of an actor, and then one, `sub`, that runs `inner`."""
    made = flow(*steps)
    made.sub("sub", "inner", depends_on=[step.name for step in made.steps.values()], **options)
    return made


def closes(flow):
    """From now on `inner` begins nothing where decisions are made."""
    flow.code = replace(flow.code, closed=CLOSED)
    return flow.settle()


def opens(flow):
    flow.code = replace(flow.code, closed=frozenset())
    return flow.settle()


def is_called_off(flow):
    """What was to run for `sub` is called off, as whoever was to begin it finds."""
    said = {"outcome": StepOutcome.CANCELED, "error_class": CALLED_OFF, "is_called_off": True}
    return flow.put(flow.end("sub", **said))


def _waiting(flow) -> list:
    return list(waiting(flow.instance, CLOSED, at=flow.now))


def test_a_step_whose_workflow_cannot_begin_waits_until_it_can():
    after = given(outer("a")).when(closes, done("a")).then("done a")
    assert _waiting(after.flow) == [("sub", 0)]
    after.when(opens).then("prepare sub", "begin sub")


def test_nothing_waits_before_what_it_depends_on_is_settled():
    assert not _waiting(given(outer("a")).when(closes).flow)


def test_nothing_waits_once_an_instance_is_to_stop():
    assert not _waiting(given(outer("a")).when(closes, done("a"), cancel()).flow)


def test_other_steps_go_on_meanwhile():
    made = outer("a")
    made.step("b", "act", "b", depends_on=["a"])
    given(made).when(closes, done("a")).then("done a", "prepare b", "begin b")


def test_an_instance_fails_as_ever_while_a_step_waits():
    made = outer("a")
    made.step("b", "act", "b")
    given(made).when(closes, done("a"), fails("b")).then(
        "failed b: crash", "abort: crash", "finish failed"
    )


def test_what_people_approve_while_it_cannot_begin_is_prepared():
    after = given(outer("a", requires_approval=True)).when(done("a"), closes)
    after.when(decided("sub", "approve")).then("approve sub", "prepare sub")
    assert _waiting(after.flow) == [("sub", 0)]
    after.when(opens).then("begin sub")


def test_a_start_that_is_called_off_is_made_when_it_can_be():
    after = given(outer("a")).when(done("a"), closes, is_called_off)
    after.then("canceled sub: called_off", "postpone sub")
    assert _waiting(after.flow) == [("sub", 0)]
    after.when(opens).then("begin sub #2")


def test_a_start_that_was_called_off_is_none_of_the_attempts_there_may_be():
    after = given(outer("a", on_failure=retrying(2, backoff_s=1)))
    after.when(done("a"), closes, is_called_off, opens, fails("sub"))
    after.then("failed sub #2: crash", "postpone sub #2").when(waits(1)).then("begin sub #3")
    after.when(fails("sub")).then("failed sub #3: crash", "abort: crash", "finish failed")


def test_a_start_that_is_called_off_when_an_instance_stops_is_not_made_again():
    given(outer("a")).when(done("a"), cancel(), is_called_off).then(
        "canceled sub: called_off", "finish canceled"
    )


def test_nobody_is_woken_for_what_is_due_and_cannot_begin():
    """Whoever knows of it has a message; each timer would add one to those."""
    flow = given(outer("a")).when(done("a"), closes, is_called_off).flow
    assert wake_at(flow.instance) == flow.now
    assert wake_at(flow.instance, but=_waiting(flow)) is None


def test_an_instance_that_is_called_off_is_over_and_tells_the_one_it_was_for():
    (sub,) = given(outer("a")).when(done("a")).flow.effects.starts
    life = folded(UNSTARTED, called_off(sub), at=EPOCH, version=1)
    assert (life.status, [*life.items()]) == ("canceled", [])
    assert follow_up(life).parent is not None
    ended = end_of_instance(life)
    assert (ended.episode_id, ended.is_called_off) == (sub.instance_id, True)


def test_an_instance_that_people_cancel_is_not_called_off():
    (sub,) = given(outer("a")).when(done("a")).flow.effects.starts
    begun = called_off(sub)[0]
    finished = WorkflowFinished(status=WorkflowStatus.CANCELED, error_class="canceled")
    life = folded(UNSTARTED, (begun, finished), at=EPOCH, version=1)
    assert not end_of_instance(life).is_called_off
