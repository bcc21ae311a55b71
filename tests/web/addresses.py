"""An address for every screen of the console, in the shop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from tests.vigil.program import Vigil
from vigil.web.table import SCREENS

EPISODE: Final = "select episode_id as id from episodes where {} order by queued_at limit 1"

_ASKING: Final = EPISODE.format("subject_id = '2.8'")
_AGENT: Final = EPISODE.format("subject_id = 'web-1' and expectation_id = 'host_is_fast'")
_ENDED: Final = EPISODE.format("subject_id = 'web-2'")

WANTED: Final[Mapping[str, tuple[str, str]]] = {
    "/inbox/step/{id}/{step}": (
        "select id, expectation_id from inbox where expectation_id = 'charge' limit 1",
        "/inbox/step/{id}/{expectation_id}",
    ),
    "/inbox/{kind}/{id:path}": (_ASKING, "/inbox/episode/{id}"),
    "/episodes/{id}": (_ENDED, "/episodes/{id}"),
    "/episodes/{id}/fork": (_ENDED, "/episodes/{id}/fork"),
    "/episodes/{id}/conversation": (_AGENT, "/episodes/{id}/conversation"),
    "/episodes/{id}/prompts/{step:int}": (_AGENT, "/episodes/{id}/prompts/1"),
    "/findings/{key:path}": (
        "select finding_key as key from findings where caused_by_key = 'host:disk:web-1'",
        "/findings/{key}",
    ),
    "/outputs/{key:path}": (
        "select output_key as key from outputs where status = 'failed'",
        "/outputs/{key}",
    ),
    "/workflows/{id}": (
        "select instance_id as id from workflow_instances where workflow_id = 'parcel'",
        "/workflows/{id}",
    ),
    "/dead-letters/{key:path}": (
        "select letter_key as key from dead_letters",
        "/dead-letters/{key}",
    ),
    "/actors/{id}": ("select 'stores' as id", "/actors/{id}"),
    "/events/{id:path}": (
        "select event_id as id from refusals where reason = 'cooldown'",
        "/events/{id}",
    ),
    "/definitions/{kind}/{id}": ("select 'watch' as id", "/definitions/actor/{id}"),
}
"""Pattern of a screen → a question to the rows, and the address that its answer makes."""


def addresses_of(command: Vigil) -> dict[str, str]:
    """Return the pattern of each screen → an address at which there is something to see."""
    found: dict[str, str] = {}
    for screen in SCREENS:
        if "{" not in screen.path:
            found[screen.path] = screen.path
            continue
        question, address = WANTED[screen.path]
        row = command.ask("sql", question)[0]
        found[screen.path] = address.format(
            **{name: quote(str(each), safe=":@/") for name, each in row.items()}
        )
    return found
