"""A stream with several copies that only ends early may catch up: whoever marks it has waited."""

from __future__ import annotations

from typing import Final

import msgspec

from streams.jetstream import LinkSettings, connect, find_losses
from streams.keys import lost_key
from streams.model.losses import Lack, Loss, LossMark
from streams.subjects import Stack
from tests.cluster.three import Three

SETTINGS: Final = LinkSettings(replicas=3)
KNOWN: Final = {"journal": 9}


async def losses_of(three: Three, stack: Stack) -> list[tuple[str, Lack]]:
    found = await find_losses(three.url, stack=stack, known=KNOWN, settings=SETTINGS)
    return [(each.part, each.lack) for each in found.losses]


async def test_what_ends_early_is_a_loss_to_accept_once_a_node_has_waited_and_marked_it(
    three: Three, stack: Stack
):
    async with connect(three.url, stack=stack, settings=SETTINGS, is_for_node=True) as ports:
        assert await losses_of(three, stack) == []
        loss = Loss(part="journal", lack=Lack.ENDS_EARLY, known_seq=9)
        mark = msgspec.json.encode(LossMark(loss=loss, by="n1"))
        await ports.registry.put(lost_key("journal"), mark, after=0)
    assert await losses_of(three, stack) == [("journal", Lack.ENDS_EARLY)]
