"""The addresses of the shop that only its rows know."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.web.world import HTML
from vigil.client import Client


@pytest.fixture
async def addresses(client: Client) -> dict[str, str]:
    """Name → the address of a page about something that the shop has."""
    (parcel,) = await client.workflows.list(workflow="parcel")
    (letter,) = await client.dead_letters.list()
    (asleep,) = await client.episodes.list(actor="backups", status="queued")
    (asking, *_) = await client.episodes.list(status="blocked", expectation="release_is_wanted")
    return {
        "finding": "/findings/site:slow:checkout",
        "hostile finding": f"/findings/{quote(f'host:disk:{HTML}')}",
        "output": f"/outputs/{quote(f'mail:{HTML}')}",
        "workflow": f"/workflows/{parcel.instance_id}",
        "dead letter": f"/dead-letters/{quote(letter.letter_key)}",
        "actor": "/actors/stores",
        "paused actor": "/actors/archive",
        "defined actor": "/actors/watch",
        "event": "/events/event-30",
        "hostile event": "/events/event-31",
        "definition": "/definitions/actor/watch",
        "queued episode": f"/episodes/{asleep.episode_id}",
        "blocked episode": f"/episodes/{asking.episode_id}",
        "failures": "/episodes?status=failed&group=1",
        "costs by finding": "/costs?by=finding&since=all",
    }
