"""Who of the nodes that are up can rule on what is said to an episode, and what is told if none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.cluster.nodes import ActorInfo, ExpectationInfo, NodeInfo
from engine.episodes.episode import Episode, fold
from engine.operations.events.why_unheard import instance_unheard, unheard
from streams.json import NOTHING, raw
from streams.model.definitions import RegisteredDefinition
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened
from streams.model.events.definitions import DefinitionKind
from streams.model.modes import NodeMode
from streams.model.triggers import Budget, EventTrigger
from streams.ports.log import Commit, Recorded

SINCE = datetime(2030, 1, 1, tzinfo=UTC)
AGENT = "agent.dba"
CANNOT = "strategy.ref: there is none"
START = "; start one that does: what was asked for stays"
HOUR = "for about an hour, then it is a dead letter to requeue"


def node(
    name: str = "n1",
    *,
    actors=None,
    closed=(),
    fallbacks=(),
    mode: NodeMode = NodeMode.FULL,
    **problems: object,
):
    return NodeInfo(
        name=name,
        host="h",
        pid=1,
        since=SINCE,
        mode=mode,
        setting=NodeMode.FULL,
        lease_s=30.0,
        actors=actors or {},
        closed=dict.fromkeys(closed, 1),
        fallbacks=tuple(fallbacks),
        **problems,
    )


def has(*expectations: str, revision: int = 0, runs: bool = True, actor: str = "dba"):
    """Return the actors of a node that has one."""
    known = {name: ExpectationInfo() for name in expectations}
    info = ActorInfo(runs=runs, wakes=runs, slots=1, revision=revision, expectations=known)
    return {actor: info}


def stands_in(
    name: str = "n1", *, problem: str = "", about: int | None = None, could: bool = False
):
    """Return a node that has what is open of `dba` go on, and perhaps says why it cannot run it."""
    return node(
        name,
        closed=["dba"],
        fallbacks=[] if could else ["dba"],
        problems={AGENT: problem} if problem else {},
        problems_at={} if about is None else {AGENT: about},
    )


def episode(*, revision: int = 0, ended: bool = False) -> Episode:
    opened = EpisodeOpened(
        episode_id="e1",
        actor_id="dba",
        expectation_id="shrink",
        trigger=EventTrigger(event_id="e1", event_type="disk.full", payload={}),
        dedupe_key="e1",
        budget=Budget(),
        revision=revision,
    )
    end = [EpisodeFinished(status=EndStatus.DONE)] if ended else []
    commit = Commit(id="c", at=SINCE, events=(opened, *end))
    return fold([Recorded(subject="s", seq=1, commit=commit)])


@pytest.mark.parametrize(
    ("nodes", "what"),
    [
        ([node(actors=has())], episode()),
        ([node(actors=has("shrink"))], episode()),
        ([node(actors=has("shrink", revision=2))], episode(revision=2)),
        ([node(actors=has("shrink", revision=2))], episode()),
        ([node("n0"), node(actors=has())], episode()),
        ([node(actors=has("grow", revision=3))], episode(revision=2, ended=True)),
        ([stands_in(problem=CANNOT, about=2)], episode(revision=2, ended=True)),
        ([stands_in(problem=CANNOT, about=2)], None),
    ],
)
def test_a_node_that_has_the_episode_as_it_was_opened_hears_what_is_said_to_it(nodes, what):
    assert unheard(nodes, "dba", what) is None


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([], "(none is up at all)"),
        ([node(), node("n2")], "(n1, n2: it does not have it)"),
        ([node(problems={AGENT: CANNOT})], f"(n1: {CANNOT})"),
        (
            [*(node(f"n{no}") for no in range(5)), node("poor", problems={AGENT: CANNOT})],
            f"(poor: {CANNOT}; n0, n1, n2, n3: it does not have it; and 1 more)",
        ),
        (
            [node(f"n{no}") for no in range(7)],
            "(n0, n1, n2, n3, n4: it does not have it; and 2 more)",
        ),
    ],
)
def test_what_no_node_takes_stays_in_the_queue_until_one_does(nodes, why):
    told = unheard(nodes, "dba", episode(revision=2))
    assert told.is_certain
    assert not told.is_tried
    assert told.why == f"no node that is up runs revision 2 of actor 'dba' {why}"
    assert str(told) == f"{told.why}{START} in the queue until then, and is ruled on then"


@pytest.mark.parametrize(
    ("nodes", "why", "remedy"),
    [
        ([node(actors=has("shrink", runs=False, revision=2), mode=NodeMode.DISABLED)],
         "(n1: it is in mode disabled, and runs nothing)", "`vigil mode n1 full`, or "),
        ([node("n0"),
          node(actors=has("shrink", runs=False, revision=3), mode=NodeMode.TRIGGER_ONLY)],
         "(n1: it is in mode trigger_only, and runs nothing; n0: it does not have it)",
         "`vigil mode n1 full`, or "),
        ([node(actors=has("shrink", runs=False, revision=2))],
         "(n1: by its mode for it, it runs nothing of it)",
         "`vigil mode n1 full --actor dba`, or "),
        ([node(actors=has("grow", runs=False, revision=2), mode=NodeMode.DISABLED)],
         "(n1: it is in mode disabled, and runs nothing)", ""),
    ],
)  # fmt: skip
def test_a_node_whose_mode_is_all_that_is_in_the_way_is_to_be_switched_on(nodes, why, remedy):
    told = unheard(nodes, "dba", episode(revision=2))
    assert (told.is_certain, told.is_tried) == (True, False)
    assert told.why.endswith(why)
    assert told.remedy == f"{remedy}start one that does"
    assert str(told).startswith(f"{told.why}; {told.remedy}: what was asked for stays")


@pytest.mark.parametrize(
    ("nodes", "revision", "why"),
    [
        ([stands_in(problem=CANNOT, about=2)], 2, f"(n1: {CANNOT})"),
        ([node("n0"), stands_in(problem=CANNOT, about=2)], 2,
         f"(n1: {CANNOT}; n0: it does not have it)"),
        ([node(actors=has("grow"))], 0, "(n1: there it has no expectation 'shrink')"),
        ([stands_in()], 0, "(n1: its code has it no more, as when this was opened)"),
    ],
)  # fmt: skip
def test_what_nodes_take_that_cannot_have_it_is_a_dead_letter_in_the_end(nodes, revision, why):
    told = unheard(nodes, "dba", episode(revision=revision))
    assert told.is_certain
    assert told.why.endswith(why)
    assert str(told).endswith(f"stays in the queue {HOUR}")


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node(actors=has("shrink", revision=3))], "(n1: it has revision 3)"),
        ([node(actors=has("shrink"))], "(n1: it has it in code)"),
        ([stands_in(problem=CANNOT, about=3)], f"(n1: revision 3: {CANNOT})"),
        ([stands_in(problem=CANNOT)], f"(n1: {CANNOT})"),
        ([stands_in()], "(n1: it is disabled, and could not run there)"),
        ([stands_in(could=True)], "(n1: it is disabled)"),
    ],
)
def test_what_a_node_finds_out_when_it_tries_is_not_told_for_certain(nodes, why):
    told = unheard(nodes, "dba", episode(revision=2))
    assert not told.is_certain
    assert told.why == f"no node that is up is sure to run revision 2 of actor 'dba' {why}"
    assert str(told).endswith(HOUR)


def test_an_episode_of_an_actor_in_code_needs_its_expectation():
    told = unheard([], "dba", episode())
    assert told.why.startswith("no node that is up runs actor 'dba' with expectation 'shrink' (")


def registered(*, holds: bool) -> RegisteredDefinition:
    body = raw({"name": "review"}) if holds else NOTHING
    return RegisteredDefinition(
        kind=DefinitionKind.WORKFLOW, id="review", revision=1, seq=1, body=body
    )


HOLDS, DISABLED = registered(holds=True), registered(holds=False)


def test_a_node_that_runs_a_workflow_hears_what_is_said_to_its_instances():
    nodes = [node(actors=has(actor="workflow-review"))]
    assert instance_unheard(nodes, "review", registered=None) is None


@pytest.mark.parametrize(
    ("nodes", "of", "is_certain", "why"),
    [
        ([], HOLDS, True, "(none is up at all)"),
        ([node()], None, True, "(n1: it does not have it)"),
        ([node(actors=has(actor="workflow-review", runs=False))], HOLDS, True,
         "(n1: by its mode for it, it runs nothing of it)"),
        ([node()], HOLDS, False, "(n1: it does not have it)"),
        ([node()], DISABLED, False, "(n1: it is disabled)"),
        ([node(problems={"workflow.review": "no step"})], DISABLED, False, "(n1: no step)"),
    ],
)  # fmt: skip
def test_any_node_may_see_to_what_is_open_of_a_workflow_that_was_defined(
    nodes, of, is_certain, why
):
    told = instance_unheard(nodes, "review", registered=of)
    assert told.is_certain is is_certain
    assert "workflow 'review'" in told.why
    assert told.why.endswith(why)


@pytest.mark.parametrize("mode", [NodeMode.DISABLED, NodeMode.TRIGGER_ONLY])
@pytest.mark.parametrize("of", [HOLDS, DISABLED])
def test_a_node_that_runs_nothing_takes_nothing_of_a_workflow_that_was_defined(mode, of):
    told = instance_unheard([node(mode=mode)], "review", registered=of)
    assert (told.is_certain, told.is_tried) == (True, False)
    assert told.why.endswith(f"(n1: it is in mode {mode}, and runs nothing)")
    assert told.remedy == "`vigil mode n1 full`, or start one that does"
