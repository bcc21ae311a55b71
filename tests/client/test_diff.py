"""How two episodes differ, by their journals."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec.structs import replace

from engine.app.findings import clear_finding, raise_finding
from engine.app.outputs import propose_output
from streams.json import raw
from streams.model.events import EpisodeConverged, Fork, StoredResult
from streams.model.findings import Severity
from tests.client.happened import happened, lived
from tests.projections import lives
from vigil.errors import NotFound


def step(number, result="done", *, path="", **fields):
    return replace(lives.recorded(number, result=result, tokens=10), path=path, **fields)


def converged(*findings, outputs=(), summary="the disk is full"):
    return EpisodeConverged(summary=summary, findings=findings, outputs=outputs)


def ran(*events, summary="the disk is full"):
    """What an episode that made these steps was, from its start to its end."""
    return lives.started(), *events, converged(summary=summary), lives.finished()


def names(values):
    return [each.name for each in values]


async def differing(ports, client, first, second):
    """Return how two episodes that lived like this differ."""
    return await client.episodes.diff(await lived(ports, 1, *first), await lived(ports, 2, *second))


async def test_equal_runs_differ_in_nothing_and_their_costs_stand_side_by_side(ports, client):
    slower = replace(step(1), cost_ms=9_000)
    found = await differing(ports, client, ran(step(1), step(2)), ran(slower, step(2)))
    assert found.is_same
    assert (found.common_steps, found.step, found.relation) == (2, None, "")
    assert (found.left.calls, found.right.calls) == (2, 2)
    assert found.left.turns == found.right.turns


async def test_what_two_episodes_have_spent_is_told_though_one_has_not_ended(ports, client):
    asked = replace(step(1), cost_usd=Decimal("0.07"))
    end = replace(lives.finished(), usd_used=Decimal("0.11"))
    ended = (lives.started(), asked, end)
    found = await differing(ports, client, (lives.started(), asked), ended)
    assert (found.left.usd, found.right.usd) == (Decimal("0.07"), Decimal("0.11"))


async def test_an_episode_is_the_same_as_itself(ports, client):
    id_ = await lived(ports, 1, *ran(step(1)))
    found = await client.episodes.diff(id_, id_)
    assert (found.is_same, found.relation) == (True, "they are the same episode")


async def test_the_first_step_that_differs_is_shown_with_both_sides(ports, client):
    first, second = ran(step(1), step(2, "a"), step(3, "x")), ran(step(1), step(2, "b"), step(3))
    found = await differing(ports, client, first, second)
    assert not found.is_same
    assert (found.common_steps, found.step.step, found.step.only_in) == (1, "2", "")
    assert [(each.name, each.left, each.right) for each in found.step.values] == [
        ("call", "disk.clean", "disk.clean"),
        ("result", "a", "b"),
    ]


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ({"tool_name": "disk.dump"}, ["call"]),
        ({"args": raw({"path": "/srv"})}, ["call", "arguments"]),
        ({"error_class": "away", "error_detail": "no answer"}, ["call", "error"]),
    ],
)
async def test_calls_arguments_and_errors_of_a_step_are_compared(ports, client, other, differs):
    found = await differing(ports, client, ran(step(1)), ran(step(1, **other)))
    assert names(found.step.values) == differs


async def test_a_run_that_went_on_has_a_step_of_its_own(ports, client):
    found = await differing(ports, client, ran(step(1)), ran(step(1), step(2)))
    assert (found.common_steps, found.step.step, found.step.only_in) == (1, "2", "right")
    assert found.step.values[0].left is None


async def test_branches_that_ran_in_another_order_are_the_same(ports, client):
    first = ran(step(1, "a", path="1.1.1"), step(2, "b", path="1.2.1"), step(3, path="2"))
    second = ran(step(1, "b", path="1.2.1"), step(2, "a", path="1.1.1"), step(3, path="2"))
    assert (await differing(ports, client, first, second)).is_same


async def test_what_a_run_was_told_of_a_change_is_no_step(ports, client):
    told = step(1, "true", path="changed:tidies")
    found = await differing(ports, client, ran(told, step(2, path="1")), ran(step(1, path="1")))
    assert (found.is_same, found.common_steps) == (True, 1)


async def test_only_the_steps_since_a_strategy_began_anew_are_compared(ports, client):
    anew = replace(lives.started(2), fresh=True)
    first = (lives.started(), step(1, "old"), anew, step(2), converged(), lives.finished())
    found = await differing(ports, client, first, ran(step(1)))
    assert (found.is_same, found.common_steps, found.left.calls) == (True, 1, 2)


async def test_what_people_may_not_see_is_not_shown_by_a_difference(ports, client):
    hidden = [step(1, each, is_hidden=True) for each in ("a secret", "another one")]
    found = await differing(ports, client, ran(hidden[0]), ran(hidden[1]))
    assert found.is_same


async def test_large_results_are_compared_by_their_digests_unless_they_are_hidden(ports, client):
    def stored(digest, **fields):
        return step(1, stored=StoredResult(digest=digest, size_bytes=2_000_000), **fields)

    found = await differing(ports, client, ran(stored("aa")), ran(stored("bb")))
    assert found.step.values[1].left == "2,000,000 bytes aa"
    hidden = [await lived(ports, n, *ran(stored(f"d{n}", is_hidden=True))) for n in (3, 4)]
    assert (await client.episodes.diff(*hidden)).is_same


async def test_findings_outputs_and_ends_that_differ_are_told_by_name(ports, client):
    high = raise_finding("disk", class_="full", severity=Severity.HIGH)
    low = raise_finding("disk", class_="full", severity=Severity.LOW)
    both = raise_finding("host", class_="up")
    mails = [propose_output("mail", {"to": each}, key="k") for each in ("ann", "bob")]
    first = (lives.started(), converged(high, both, outputs=(mails[0],)), lives.finished())
    ended = converged(low, both, clear_finding("net"), outputs=(mails[1],), summary="no disk")
    found = await differing(ports, client, first, (lives.started(), ended, lives.finished()))
    assert found.step is None
    assert names(found.findings) == ["disk", "net"]
    assert (found.findings[0].left["severity"], found.findings[1].left) == ("high", None)
    assert [(each.name, each.left["payload"]) for each in found.outputs] == [
        ("mail:k", {"to": "ann"})
    ]
    assert names(found.ends) == ["summary"]


async def test_a_fork_and_what_it_is_a_fork_of_are_told_apart(ports, client):
    id_ = await lived(ports, 1, *ran(step(1), step(2)))
    forks = []
    for number in (2, 3):
        origin = Fork(episode_id=id_, step_no=1, by="ann")
        opened = replace(lives.opened(number, payload={"host": "h2"}), fork=origin)
        forks.append(lives.episode_id(number))
        await happened(ports, ports.stack.episode(forks[-1]), opened, step(1))
    found = await client.episodes.diff(id_, forks[0])
    assert found.relation == "the second is a fork of the first, at step 1"
    assert [(each.name, each.right) for each in found.begins] == [("payload", {"host": "h2"})]
    turned = await client.episodes.diff(forks[0], id_)
    assert turned.relation == "the first is a fork of the second, at step 1"
    assert (await client.episodes.diff(*forks)).relation == f"both are forks of {id_}"


async def test_an_episode_that_is_not_on_the_journal_has_no_difference(ports, client):
    id_ = await lived(ports, 1, *ran(step(1)))
    with pytest.raises(NotFound, match="on the journal of stack"):
        await client.episodes.diff(id_, lives.episode_id(9))
