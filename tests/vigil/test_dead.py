"""What operators do about what is stuck: `dead`, `recover`, `episodes replay`, on real servers."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise

import pytest

from engine.app.dedupe import episode_id
from engine.dead_letters.write import DeadLetterWriter
from engine.outputs.dead_letters import write_failed
from engine.outputs.output import fold as fold_output
from streams.clock import SystemClock
from streams.jetstream import connect
from streams.json import raw
from streams.keys import episode_claim
from streams.layout import Stream
from streams.model.events import (
    EndStatus,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    OutputAttempted,
    OutputFailed,
    StepKind,
    StepRecorded,
)
from streams.model.triggers import Budget, EventTrigger
from streams.ports.all import Ports
from streams.ports.delivery import Unreadable
from streams.ports.log import START, Commit
from streams.subjects import Stack
from tests.vigil.journal import KEPT, proposed
from tests.vigil.program import Vigil
from tests.vigil.test_command_line import one_line

CLOCK = SystemClock()
STARTED = EpisodeStarted(node="gone", attempt=1, claim_revision=1)
FAILED = EpisodeFinished(status=EndStatus.FAILED, error_class="attempts_exhausted")
STEP = StepRecorded(
    step_no=1,
    kind=StepKind.OBSERVATION,
    fingerprint="f",
    result=raw({"secret": 7}),
    result_shown=raw("hidden"),
    cost_tokens=3,
)


def opened_for(stack: Stack, host: str) -> EpisodeOpened:
    key = f"event:{host}"
    names = {"actor": "watcher", "expectation": "look", "dedupe_key": key}
    return EpisodeOpened(
        episode_id=episode_id(stack=stack.name, **names),
        actor_id="watcher",
        expectation_id="look",
        trigger=EventTrigger(event_id=host, event_type="host.seen", payload={"host": host}),
        dedupe_key=key,
        budget=Budget(),
    )


class Past:
    """Puts on the log of a stack what may have happened there."""

    def __init__(self, vigil: Vigil) -> None:
        self.stack = Stack(vigil.environ["VIGIL_STACK"])
        self._url = vigil.environ["VIGIL_NATS_URL"]

    def live(self, host: str, *events, ago_s: float = 0.0) -> str:
        """Open an episode about a host, let it live `events`, and return its id."""
        opened = opened_for(self.stack, host)
        at = CLOCK.now() - timedelta(seconds=ago_s)
        commit = Commit(id=f"c-{host}", at=at, events=(opened, *events))

        async def write(ports: Ports) -> None:
            subject = self.stack.episode(opened.episode_id)
            await ports.log.append(subject, commit, after=START)

        self._do(write)
        return opened.episode_id

    def write_episode(self, host: str) -> str:
        """Give an episode up, and return the letter's key."""
        opened = opened_for(self.stack, host)
        self.live(host, STARTED, FAILED)

        async def write_message(ports: Ports) -> None:
            dead_letters = DeadLetterWriter(ports, CLOCK)
            await dead_letters.write_episode(
                opened, reason="attempts_exhausted", detail="3 crashes"
            )

        self._do(write_message)
        return f"episode.{opened.episode_id}"

    def bury_output(self, key: str, episode_id: str) -> None:
        """Have an output of an episode of `watcher` fail for good, with a letter about it."""
        owner = {"episode_id": episode_id, "actor_id": "watcher", "expectation_id": "look"}
        tried = OutputAttempted(attempt=1), OutputFailed(attempt=1, error_class="away")
        commit = Commit(id=f"o-{key}", at=CLOCK.now(), events=(proposed(key, **owner), *tried))

        async def write_message(ports: Ports) -> None:
            subject = self.stack.output(key)
            await ports.log.append(subject, commit, after=START)
            output = fold_output(await ports.log.read(subject))
            await write_failed(DeadLetterWriter(ports, CLOCK), output)

        self._do(write_message)

    def bury_events(self, *seqs: int) -> list[str]:
        """Bury what no actor could read, and return the letters' keys."""
        stream = self.stack.stream(Stream.EVENTS)

        async def write_message(ports: Ports) -> None:
            for seq in seqs:
                message = Unreadable(
                    reason="unreadable",
                    detail="not JSON",
                    stream=stream,
                    seq=seq,
                    subject=self.stack.event("host.seen"),
                    headers={},
                    data=b"{ no",
                )
                await DeadLetterWriter(ports, CLOCK).write_message(message, actor_id="watcher")

        self._do(write_message)
        return [f"{stream}.{seq}" for seq in seqs]

    def claim(self, host: str) -> None:
        """Let a node that will never be heard of again claim an episode, for half a minute."""
        key = episode_claim("watcher", opened_for(self.stack, host).episode_id)
        self._do(lambda ports: ports.leases.acquire(key, holder="elsewhere"))

    def _do(self, work) -> None:
        async def connected() -> None:
            async with connect(self._url, stack=self.stack) as ports:
                await work(ports)

        asyncio.run(connected())


@pytest.fixture
def past(connected: Vigil) -> Past:
    return Past(connected)


@contextmanager
def projected(vigil: Vigil) -> Iterator[None]:
    """A projector meanwhile."""
    with vigil.running("project") as program:
        yield
        assert program.stop(signal.SIGTERM) == 0


def keys(rows):
    return {row["letter_key"] for row in rows}


def test_letters_wait_in_a_list_until_somebody_decides(connected, past):
    one, other = past.bury_events(7, 8)
    with projected(connected):
        connected.wait_for("dead", "list", until=lambda rows: keys(rows) == {one, other})
        done = connected.run("dead", "discard", one, "--reason", "a typo", "--by", "ann")
        assert done.stdout == f"{one}: discarded\n"
        connected.wait_for("dead", "list", until=lambda rows: keys(rows) == {other})
    every = {row["letter_key"]: row for row in connected.ask("dead", "list", "--all")}
    assert every[one]["status"] == "discarded"
    assert (every[one]["settled_by"], every[one]["settled_note"]) == ("ann", "a typo")
    shown = connected.ask("dead", "show", one)
    assert (shown["payload"], shown["detail"]) == ("{ no", "not JSON")


def test_a_requeued_event_is_published_again(connected, past):
    connected.run("publish", "host.seen", '{"host": "h1"}', "--id", "ev-1", "--create-stack")
    (key,) = past.bury_events(1)

    done = connected.run("dead", "requeue", key)

    assert (done.returncode, done.stdout) == (0, f"{key}: requeued as event 2\n")


def test_a_requeued_episode_runs_as_another_one(connected, past, write_app):
    write_app()
    key = past.write_episode("h1")

    done = connected.run("dead", "requeue", key)

    again = done.stdout.split()[-1]
    with connected.running("node", "--app", "watch:app") as node:
        row = connected.wait_for(
            "episodes", "show", again, until=lambda row: row["status"] == "done"
        )
        letter = connected.wait_for(
            "dead", "show", key, until=lambda row: row["status"] == "requeued"
        )
        assert node.stop(signal.SIGTERM) == 0
    assert (row["generation"], row["summary"]) == (1, "h1 was seen")
    assert letter["settled_note"] == f"episode {again}"


def test_who_has_an_output_tried_again_that_no_node_can_rule_on_is_told_so(connected, past):
    past.bury_output("mail:1", past.live("h1", STARTED, FAILED))
    with projected(connected):
        ((key, *_),) = (keys(connected.wait_for("dead", "list", until=bool)),)

    done = connected.run("dead", "requeue", key)

    assert (done.returncode, done.stdout) == (
        0,
        f"{key}: requeued: its output is to be tried again\n",
    )
    why = f"no node that is up runs actor 'watcher' (none is up at all); {KEPT}"
    assert done.stderr == f"vigil: {why}\n"


def test_all_that_wait_can_be_requeued_by_whoever_is_sure(connected, past):
    keys_ = [past.write_episode(host) for host in ("h1", "h2")]
    with projected(connected):
        connected.wait_for("dead", "list", until=lambda rows: keys(rows) == set(keys_))
        for asked in (("requeue",), ("discard", "--reason", "r")):
            unsure = connected.run("dead", *asked, "--all-waiting")
            assert (
                one_line(unsure, code=2)
                == "vigil: there is no terminal to confirm on; give --yes\n"
            )
        done = connected.run("dead", "requeue", "--all-waiting", "--yes")
        assert (done.returncode, done.stdout.count("requeued as episode")) == (0, 2)
        connected.wait_for("dead", "list", until=lambda rows: rows == [])
    assert connected.run("dead", "requeue", "--all-waiting", "--yes").returncode == 0


def test_what_cannot_be_settled_is_one_line_each_and_keeps_nothing_else_from_it(connected, past):
    (good,) = past.bury_events(7)
    assert connected.run("dead", "discard", good, "--reason", "r", "--by", "ann").returncode == 0
    for command in (("requeue",), ("discard", "--reason", "r")):
        assert "discarded by ann" in one_line(connected.run("dead", *command, good), code=1)
        assert "no such dead letter" in one_line(connected.run("dead", *command, "a.1"), code=1)
        assert "7: there is no such dead" in one_line(connected.run("dead", *command, "7"), code=1)
    (other,) = past.bury_events(8)
    done = connected.run("dead", "discard", "a.1", other, "--reason", "r")
    assert (done.returncode, done.stdout) == (1, f"{other}: discarded\n")


def test_an_event_that_is_gone_is_one_line(connected, past):
    (key,) = past.bury_events(99)
    assert "any more" in one_line(connected.run("dead", "requeue", key), code=1)


def test_the_letter_of_an_episode_is_named_by_so_much_of_its_key_as_tells_it_apart(connected, past):
    one, other = (past.write_episode(host) for host in ("h1", "h2"))
    with projected(connected):
        connected.wait_for("dead", "list", until=lambda rows: keys(rows) == {one, other})
    short = one[: len("episode.") + 8]
    listed = [line.split()[0] for line in connected.run("dead", "list").stdout.splitlines()]
    assert connected.ask("dead", "show", short)["letter_key"] == one
    assert (short in listed, one in listed) == (True, False)

    said = one_line(connected.run("dead", "requeue", "episode."), code=1)
    assert "there is no such dead letter" in said
    said = one_line(connected.run("dead", "discard", "episode.zz", "--reason", "r"), code=1)
    assert "`vigil dead list --all` shows those there are" in said
    done = connected.run("dead", "discard", short.upper().replace("EPISODE", "episode"),
                         "--reason", "r")  # fmt: skip
    assert done.stdout == f"{one}: discarded\n"


def test_a_beginning_of_several_keys_of_letters_names_them(connected, past):
    several = sorted(past.write_episode(f"h{number}") for number in range(17))
    digit = next(a[8] for a, b in pairwise(several) if a[8] == b[8])
    with projected(connected):
        connected.wait_for("dead", "list", until=lambda rows: len(rows) == len(several))

    said = one_line(connected.run("dead", "requeue", f"episode.{digit}"), code=2)

    assert f"'episode.{digit}' begins the keys of several dead letters: episode.{digit}" in said


def test_letters_are_named_or_all(vigil):
    assert "--all-waiting" in one_line(vigil.run("dead", "requeue"), code=2)
    assert "--all-waiting" in one_line(vigil.run("dead", "requeue", "a.1", "--all-waiting"), code=2)


def test_a_letter_that_is_not_there_cannot_be_shown(connected, past):
    (key,) = past.bury_events(7)
    with projected(connected):
        connected.wait_for("dead", "list", until=lambda rows: keys(rows) == {key})
    assert "no dead letter" in one_line(connected.run("dead", "show", "a.1"), code=1)


def test_a_sweep_has_forgotten_episodes_run_to_their_end(connected, past, write_app):
    write_app()
    lost = {past.live("queued", ago_s=300), past.live("running", STARTED, ago_s=300)}
    past.live("held", STARTED, ago_s=300)
    past.claim("held")
    past.live("fresh", STARTED)
    with projected(connected):
        connected.wait_for("episodes", "list", until=lambda rows: len(rows) == 4)
        dry = connected.ask("recover", "--dry-run")
        assert (dry["recovered"], dry["held"], dry["dry_run"]) == (2, 1, True)
        done = connected.ask("recover")
        assert (done["recovered"], done["held"], done["called"], done["ended"]) == (2, 1, 0, 0)
        found = {row["episode_id"]: row["verdict"] for row in done["episodes"]}
        assert {one for one, verdict in found.items() if verdict == "recovered"} == lost
        assert connected.ask("recover")["called"] == 2
        assert "called 2" in connected.run("recover", "--stale-after", "200").stdout
    with connected.running("node", "--app", "watch:app") as node:
        rows = connected.wait_for(
            "episodes", "list", "--status", "done", until=lambda rows: len(rows) == 2
        )
        assert node.stop(signal.SIGTERM) == 0
    assert {row["episode_id"] for row in rows} == lost


def test_a_sweep_of_nothing_says_so(connected, past):
    past.live("fresh")
    with projected(connected):
        connected.wait_for("episodes", "list", until=lambda rows: len(rows) == 1)
    assert connected.run("recover").stdout.startswith("recovered 0, ")


def test_an_episode_unfolds_event_by_event(connected, past):
    episode = past.live("h1", STARTED, STEP, FAILED)

    lines = connected.run("episodes", "replay", episode, "--json").stdout.splitlines()

    frames = [json.loads(line) for line in lines]
    assert [frame["number"] for frame in frames] == [1, 2, 3, 4]
    assert [frame["event"].split("@")[0] for frame in frames] == [
        "episode.opened", "episode.started", "episode.step_recorded", "episode.finished",
    ]  # fmt: skip
    assert [frame["status"] for frame in frames] == ["queued", "running", "running", "failed"]
    assert [frame["tokens_used"] for frame in frames] == [0, 0, 3, 3]
    assert "step_recorded" in connected.run("episodes", "replay", episode).stdout


def test_an_episode_can_be_looked_at_as_it_was(connected, past):
    episode = past.live("h1", STARTED, STEP, FAILED)

    then = connected.ask("episodes", "replay", episode, "--at", "3")

    assert (then["status"], then["steps_recorded"], then["finished"]) == ("running", 1, None)
    assert then["opened"]["trigger"]["payload"] == {"host": "h1"}
    assert then["said"]["result"] == "hidden"
    assert "7" not in json.dumps(then["said"])
    said = one_line(connected.run("episodes", "replay", episode, "--at", "9"), code=1)
    assert "holds 4 events" in said


def test_an_episode_that_is_not_there_cannot_be_replayed(standing):
    nobody = "00000000-0000-0000-0000-000000000000"
    assert "on the journal" in one_line(standing.run("episodes", "replay", nobody), code=1)
