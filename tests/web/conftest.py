"""The console of a shop that runs on servers of its own, as people of every role see it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest
from starlette.requests import Request

from engine.people.identity import Identity, Role
from projections.embedded import EmbeddedPostgres
from streams.embedded import EmbeddedNats
from tests.vigil.program import Vigil
from tests.web.world import DEFINED, FIRED, HAPPENED, HTML, PAUSED, UNSETTLED
from vigil.client import Client, SyncClient
from vigil.web.app import console

NAME: Final = "x-name"
ROLE: Final = "x-role"
ADDRESS: Final = "http://console"
READY_S: Final = 60.0
PASSWORD: Final = "correct horse battery staple"


async def by_header(request: Request) -> Identity | None:
    """Say who sends a request as its headers do; a console of users asks their sessions."""
    role = request.headers.get(ROLE)
    return Identity(name=request.headers.get(NAME, "ann"), role=Role(role)) if role else None


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vigil]:
    """The command, on servers where a node runs the shop, which has had a busy day."""
    folder: Path = tmp_path_factory.mktemp("shop")
    with (
        EmbeddedNats(folder / "nats") as nats,
        EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as postgres,
    ):
        command = Vigil(folder, VIGIL_NATS_URL=nats.url, VIGIL_POSTGRES_DSN=postgres.dsn)
        with command.running("node", "--app", "tests.web.world:app", "--node-name", "shop-1"):
            happen(command)
            yield command


def happen(command: Vigil) -> None:
    """Have all happen that is to, and wait until it has come to what it comes to."""
    with SyncClient(**addresses(command), by="ann", create_stack=True) as client:
        for actor in ("billing", PAUSED):
            client.nodes.wait_ready(actor, timeout_s=READY_S)
        client.actors.pause(PAUSED, reason=f"its tables are moved {HTML}")
        for definition, reason in DEFINED:
            client.definitions.apply(definition, reason=reason)
        for number, (event, payload) in enumerate(HAPPENED):
            client.publish(event, payload, id=f"event-{number}")
        for actor, expectation, payload, key in FIRED:
            client.fire(actor, expectation, payload, key=key, reason="tests are green")
    command.wait_for("sql", UNSETTLED, until=lambda rows: not rows)


def addresses(command: Vigil) -> dict[str, str]:
    """Return where the servers of a command are, and which stack, as a client takes it."""
    stack = command.environ.get("VIGIL_STACK")
    return {
        **({} if stack is None else {"stack": stack}),
        "nats_url": command.environ["VIGIL_NATS_URL"],
        "postgres_dsn": command.environ["VIGIL_POSTGRES_DSN"],
    }


@pytest.fixture
async def client(shop: Vigil) -> AsyncIterator[Client]:
    """A client of the shop, as the console has one."""
    async with Client(**addresses(shop), by="console") as client:
        yield client


@pytest.fixture
async def browser(client: Client) -> AsyncIterator[httpx.AsyncClient]:
    """What sends requests to the console, as an admin unless its headers say otherwise."""
    app = console(client, identify=by_header)
    transport = httpx.ASGITransport(app=app)
    headers = {ROLE: Role.ADMIN.value, "sec-fetch-site": "same-origin"}
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=headers) as sending:
        yield sending


@dataclass(frozen=True)
class Served:
    """A console, and how to have things happen in its stack."""

    address: str
    link: str
    command: Vigil

    def publish(self, event: str, **payload: object) -> None:
        """Have an event happen."""
        with SyncClient(**addresses(self.command), by="ann") as client:
            client.publish(event, payload)


@pytest.fixture(scope="session")
def served(shop: Vigil) -> Iterator[Served]:
    """A console of the shop, whose people have passwords."""
    with serving(shop) as served:
        yield served


@contextmanager
def serving(command: Vigil) -> Iterator[Served]:
    """Run a console of a stack, and give its people passwords."""
    with SyncClient(**addresses(command), by="root", create_stack=True) as client:
        for name, role in (("ann", "admin"), ("bob", "approver"), ("eve", "viewer")):
            client.people.add(name, role=role, password=PASSWORD)
    with command.running("console", "--port", "0") as console:
        said = console.wait_said("Console ")
        found = re.search(r"Console +(http://\S+)", said)
        assert found is not None
        yield Served(found[1].partition("/link")[0], found[1], command)
