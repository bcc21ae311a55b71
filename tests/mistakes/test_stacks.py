"""Mistakes about stacks: a misspelt name, one actor declared in two ways, servers that are away."""

from __future__ import annotations

import json
import shlex
import socket
import struct
import threading

import pytest

from streams import jetstream
from streams.embedded import EmbeddedNats
from streams.jetstream.connection.link import RECONNECT_S
from streams.jetstream.ports.configs import stacks_among
from streams.subjects import Stack
from tests.mistakes.mistake import Mistake
from tests.vigil.program import NOWHERE, Vigil
from vigil.asking.connect import COMMAND_TRIES_S
from vigil.client import Client
from vigil.errors import NotFound, StackNotFound

WATCHER = """
from vigil import Actor, App, event

watcher = Actor("watcher")

@watcher.expectation(on=event("host.seen"), cooldown_s=60)
async def look(ctx, trigger): ...

app = App(actors=[watcher])
"""

MISTAKES = [
    Mistake(
        76,
        "the name of the stack is misspelt",
        "vigil --stack vigl publish host.seen {}",
        "vigil: there is no stack 'vigl' on this server; did you mean vigil? Otherwise start a"
        " node, which makes its stack, or make it with `vigil publish --create-stack`",
        "command",
    ),
    Mistake(
        84,
        "no NATS server listens at the address",
        "vigil --nats-url nats://127.0.0.1:1 publish x {}",
        "vigil: connecting to nats://127.0.0.1:1: nobody listens there; `vigil up` brings servers"
        " of its own, `vigil doctor` shows which are looked for and why",
        "command",
    ),
    Mistake(
        86,
        "the address of the NATS server names no host that there is",
        "vigil --nats-url foo.invalid publish x {}",
        "vigil: connecting to foo.invalid: that name of a host cannot be looked up; `vigil up`"
        " brings servers of its own, `vigil doctor` shows which are looked for and why",
        "command",
    ),
    Mistake(
        86,
        "the address of the NATS server is one of another kind of server",
        "vigil --nats-url http://127.0.0.1:1 publish x {}",
        "vigil: --nats-url: not the address of a NATS server: it does not begin with one of nats,"
        " tls, ws, wss; use nats://host:port",
        "command",
    ),
    Mistake(
        90,
        "two apps with one actor id on one stack, which declare it differently",
        WATCHER,
        "actor 'watcher' is declared differently by node n1 and node n2 (expectation look: on event"
        " host.seen and event host.lost; expectation look: cooldown_s 60 and unset): expected"
        " during a deploy; otherwise each event goes to either",
        "log",
    ),
]

COMMAND_COMES_MAX = 2 * (1 + round(COMMAND_TRIES_S / RECONNECT_S))
"""How often a command tries to connect; the client tries at most twice each time."""

MOST_S = 30.0

SAID = {each.number: each.said for each in MISTAKES}

ASKED = (
    *("publish x {}", "publish x --lines", "fire watcher look", "actors list", "actors show a"),
    *("actors pause a", "mode", "orders rebuild", "apply rule.yaml", "reconcile", "uncompress"),
    *("findings clear k", "findings ack k", "findings note k text"),
    *("events why x1", "episodes resolve r", "actors why a e", "workflows start w"),
)
"""Commands that go to the log."""

RULE = """
id: a
expectations:
  e: {on: {event: x}, strategy: {ref: look}}
"""

READER = """
accounts: {ALL: {jetstream: enabled, users: [
  {user: all, password: x}
  {user: reader, password: x, permissions: {
    publish: {allow: ["$JS.API.INFO", "$JS.API.STREAM.INFO.*"]}, subscribe: {allow: ["_INBOX.>"]}}}
]}}
"""


@pytest.fixture
def vigil(tmp_path, nats):
    """The command, with a server on which there is the stack `vigil`, and without rows."""
    (tmp_path / "rule.yaml").write_text(RULE)
    command = Vigil(tmp_path, **{**NOWHERE, "VIGIL_NATS_URL": nats.url})
    done = command.run("publish", "nobody.listens", "{}", "--create-stack")
    assert done.returncode == 0, done.stderr
    return command


def streams_of(vigil, stack):
    checks = json.loads(vigil.run("doctor", "--json", "--stack", stack).stdout)["checks"]
    return {each["status"] for each in checks if each["what"].startswith("stream ")}


def test_a_misspelt_stack_is_refused_in_one_line_and_not_made(vigil):
    (row,) = (each for each in MISTAKES if each.number == 76)
    _, *words = shlex.split(row.done)
    done = vigil.run(*words)
    assert done.stderr.startswith(row.said)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert streams_of(vigil, "vigl") == {"note"}


@pytest.mark.parametrize("typed", ASKED)
def test_each_command_that_goes_to_the_log_says_so(vigil, typed):
    done = vigil.run(*shlex.split(typed), "--stack", "vigl")
    assert done.stderr.startswith(SAID[76]), done.stderr
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_a_person_may_make_a_stack_before_its_first_node(vigil):
    made = vigil.run("publish", "host.seen", "{}", "--stack", "fresh", "--create-stack")
    again = vigil.run("publish", "host.seen", "--lines", "--stack", "fresh", stdin=b"{}")
    assert (made.returncode, again.returncode) == (0, 0)
    assert streams_of(vigil, "fresh") == {"ok"}


async def test_a_client_says_what_the_command_does(vigil, nats):
    async with Client(nats_url=nats.url, stack="vigl") as client:
        with pytest.raises(StackNotFound) as refused:
            await client.publish("host.seen", {})
    assert f"vigil: {refused.value}".startswith(SAID[76])
    assert "create_stack=True" in refused.value.remedy


async def test_a_misspelt_stack_is_not_taken_for_a_missing_finding(vigil, nats):
    async with Client(nats_url=nats.url, stack="vigl") as client:
        with pytest.raises(StackNotFound) as refused:
            await client.findings.clear("k")
    assert not isinstance(refused.value, NotFound)


async def test_a_client_makes_a_stack_if_it_is_told_to(nats, stack):
    name = f"made-{stack.name}"
    async with Client(nats_url=nats.url, stack=name, create_stack=True) as client:
        assert (await client.publish("host.seen", {})).seq == 1
    async with Client(nats_url=nats.url, stack=name) as client:
        assert (await client.publish("host.seen", {})).seq == 2


async def test_on_an_empty_server_no_other_stack_is_named(tmp_path):
    with EmbeddedNats(tmp_path) as server:
        async with Client(nats_url=server.url) as client:
            with pytest.raises(
                StackNotFound, match="'vigil' on this server; start a node, which makes"
            ):
                await client.publish("host.seen", {})


async def test_who_may_not_ask_for_names_is_told_the_rest(tmp_path):
    with EmbeddedNats(tmp_path, extra_config=READER) as server:
        whole = server.url.replace("//", "//all:x@")
        async with jetstream.connect(whole, stack=Stack("vigil")):
            pass
        reader = server.url.replace("//", "//reader:x@")
        async with Client(nats_url=reader, stack="vigl") as client:
            with pytest.raises(
                StackNotFound, match="'vigl' on this server; start a node, which makes"
            ):
                await client.publish("host.seen", {})


@pytest.mark.parametrize(
    ("streams", "stacks"),
    [
        (["KV_a-registry", "a-events", "KV_b-qa-registry", "b-qa-events", "x"], ["a", "b-qa"]),
        (["KV_a-registry", "a-events", "a", "KV_a", "a-registry"], ["a"]),
        (["KV_a-registry", "b-events", "KV_registry", "events", "-events", "registry"], []),
    ],
)
def test_a_bucket_of_somebody_else_is_no_stack(streams, stacks):
    assert stacks_among(streams) == stacks


def test_two_apps_that_declare_one_actor_differently_are_told_of(vigil):
    (row,) = (each for each in MISTAKES if each.number == 90)
    other = row.done.replace("host.seen", "host.lost").replace(", cooldown_s=60", "")
    (vigil.folder / "one.py").write_text(row.done)
    (vigil.folder / "two.py").write_text(other)
    command = ("node", "--no-project", "--stack", "shared", "--log", "json", "--app")
    with vigil.running(*command, "one:app", "--node-name", "n1") as one:
        one.wait_said("node up")
        with vigil.running(*command, "two:app", "--node-name", "n2") as two:
            one.wait_said(row.said)
            two.wait_said("by node n2 and node n1 (expectation look: on event host.lost and event")
            (shown,) = vigil.ask("actors", "show", "watcher", "--stack", "shared")["differences"]
            doctor = vigil.run("doctor", "--json", "--stack", "shared")
            told = vigil.run("actors", "show", "watcher", "--stack", "shared").stdout
    (check,) = (c for c in json.loads(doctor.stdout)["checks"] if c["what"] == "actor 'watcher'")
    assert shown == check["says"] == row.said
    assert (check["status"], "of its own" in check["remedy"]) == ("note", True)
    assert row.said in " ".join(told.split())


@pytest.mark.parametrize(
    "row", [each for each in MISTAKES if each.number in {84, 86}], ids=lambda row: row.made
)
def test_a_server_that_is_not_there_is_told_in_one_line(tmp_path, row):
    _, *words = shlex.split(row.done)
    done = Vigil(tmp_path).run(*words)
    assert done.stderr == f"{row.said}\n"
    assert (done.returncode, done.stdout) == (2 if "--nats-url:" in row.said else 1, "")


class Refusing:
    """Is at a port, counts who comes, and resets each connection, as a server that is starting."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._server.getsockname()[1]}"
        self._came = threading.Condition()
        self.count = 0
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                visitor, _ = self._server.accept()
            except OSError:
                return
            visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            visitor.close()
            with self._came:
                self.count += 1
                self._came.notify_all()

    def wait_count(self, least: int) -> bool:
        with self._came:
            return self._came.wait_for(lambda: self.count >= least, MOST_S)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


@pytest.fixture
def refusing():
    server = Refusing()
    yield server
    server.close()


def test_a_command_gives_up_soon(tmp_path, refusing):
    command = Vigil(tmp_path, **{**NOWHERE, "VIGIL_NATS_URL": refusing.url})
    done = command.run("publish", "x", "{}")
    assert done.stderr.startswith(f"vigil: connecting to {refusing.url}: ")
    assert (done.returncode, 1 <= refusing.count <= COMMAND_COMES_MAX) == (1, True)


def test_a_node_goes_on_trying_for_a_while(tmp_path, refusing):
    (tmp_path / "one.py").write_text(WATCHER)
    command = Vigil(tmp_path, **{**NOWHERE, "VIGIL_NATS_URL": refusing.url})
    with command.running("node", "--app", "one:app", "--no-project") as node:
        assert refusing.wait_count(COMMAND_COMES_MAX + 1), node.said
