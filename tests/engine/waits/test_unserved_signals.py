"""A signal whose wait ends otherwise before it arrives is kept as a dead letter."""

from __future__ import annotations

import json

import pytest

from engine.errors import Rejected
from engine.operations.dead_letters import DeadLetterRequests
from streams.clock import SystemClock
from streams.json import raw
from streams.model.commands import Resolve
from vigil import Actor, App, ConvergeResult, manual
from vigil.testing import run

WAIT_S = 60.0
PAID = {"paid": True}


async def pays(ctx, trigger):
    paid = await ctx.wait("payment:42", expires_s=WAIT_S, on_expiry="continue")
    return ConvergeResult(summary=f"{paid}")


@pytest.fixture
def app() -> App:
    actor = Actor("worker")
    actor.expect("thing", pays, on=manual())
    return App(actors=[actor])


async def waiting(vigil) -> str:
    await vigil.fire("worker", "thing")
    await vigil.run_until_idle()
    return vigil.episode().id


async def arrives(vigil, episode_id, *, result=PAID) -> None:
    """Bring a signal that was given to the episode while it still waited."""
    late = Resolve(
        actor_id="worker",
        episode_id=episode_id,
        id="s1",
        ref="payment:42",
        by="billing",
        result=raw(result),
    )
    await vigil.ports.commands.send(late, id="late")
    await vigil.run_until_idle()


async def expires(vigil, episode_id) -> None:
    await vigil.advance(seconds=WAIT_S + 1)


async def is_canceled(vigil, episode_id) -> None:
    await vigil.cancel(episode_id)
    await vigil.run_until_idle()


@pytest.mark.parametrize("ends", [expires, is_canceled])
async def test_it_is_a_dead_letter_that_can_be_sent_anew(app, ends):
    async with run(app) as vigil:
        id_ = await waiting(vigil)
        await ends(vigil, id_)
        await arrives(vigil, id_)
        (letter,) = vigil.dead_letters()
        assert (letter.reason, letter.actor_id) == ("nobody_waits", "worker")
        assert id_ in letter.detail
        said = {"ref": "payment:42", "result": {"paid": True}, "by": "billing"}
        assert (letter.subject, json.loads(letter.payload)) == ("vigil.event.wait.resolved", said)

        await vigil.fire("worker", "thing")
        await requeue(vigil, letter)
        await vigil.run_until_idle()
        served = [each for each in vigil.episodes() if each.summary == "{'paid': True}"]
        assert len(served) == 1, "the next one that waits gets it"


async def requeue(vigil, letter) -> None:
    requests = DeadLetterRequests(vigil.ports, SystemClock())
    await requests.requeue(f"{letter.stream}.{letter.seq}", by="ann")


async def test_one_that_is_too_large_to_be_kept_whole_is_for_its_sender(app):
    async with run(app) as vigil:
        id_ = await waiting(vigil)
        await expires(vigil, id_)
        await arrives(vigil, id_, result={"paid": "x" * 300_000})
        (letter,) = vigil.dead_letters()
        with pytest.raises(Rejected, match="send the signal again yourself"):
            await requeue(vigil, letter)


async def test_one_that_comes_twice_is_no_dead_letter(app):
    async with run(app) as vigil:
        id_ = await waiting(vigil)
        await arrives(vigil, id_)
        assert vigil.episode(id_).summary == "{'paid': True}"
        await vigil.deliver_again()
        await arrives(vigil, id_)
        assert vigil.dead_letters() == []
