"""Puts on the log of a stack what may have happened there, and looks at what waits in it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar
from uuid import UUID, uuid4

from engine.app.workflow_plan import PREFIX
from engine.cluster.nodes import ActorInfo, NodeInfo, encoded
from streams.clock import SystemClock
from streams.jetstream import connect
from streams.json import raw
from streams.keys import node_key
from streams.model.deltas import Delta
from streams.model.events import (
    BlockReason,
    CheckpointSaved,
    EpisodeBlocked,
    EpisodeOpened,
    EpisodeStarted,
    LogEvent,
    OutputProposed,
    SignalWaited,
)
from streams.model.modes import NodeMode
from streams.model.triggers import Budget, EventTrigger
from streams.model.waits import Approval, Wait
from streams.ports.all import Ports
from streams.ports.log import START, Commit
from streams.subjects import Stack
from tests.vigil.program import Vigil

CLOCK: Final = SystemClock()
WAIT_S: Final = 20.0
LOOK_S: Final = 0.02
PLAN: Final = raw({"drop": "t1"})
PLAN_HASH: Final = "0123456789abcdef" * 4
NODE_TTL_S: Final = 60
DBA: Final[Mapping[str, int]] = {"dba": 0}
KEPT: Final = (
    "start one that does: what was asked for stays in the queue until then, and is ruled on then"
)
"""What becomes of a command that no node takes, in words."""

T = TypeVar("T")


def approval(**fields: object) -> Approval:
    return Approval(**({"plan_hash": PLAN_HASH, "plan": PLAN, "summary": "drop t1"} | fields))


def proposed(key: str, **fields: object) -> OutputProposed:
    given = {
        "output_key": key,
        "adapter": "pager",
        "payload": PLAN,
        "episode_id": str(UUID(int=7)),
        "actor_id": "dba",
        "expectation_id": "shrink",
    }
    return OutputProposed(**(given | fields))


def said_by(name: str, problems: Mapping[str, str], **revisions: int) -> NodeInfo:
    """Return what a node says that runs these revisions of actors, and cannot run others.

    An actor that is called as the starter of a workflow is that.
    """
    return NodeInfo(
        name=name,
        host="h",
        pid=1,
        since=CLOCK.now(),
        mode=NodeMode.FULL,
        setting=NodeMode.FULL,
        lease_s=30.0,
        actors={
            actor: ActorInfo(
                runs=True,
                wakes=True,
                slots=1,
                revision=revision,
                workflow=actor.removeprefix(PREFIX) if actor.startswith(PREFIX) else "",
            )
            for actor, revision in revisions.items()
        },
        problems=dict(problems),
    )


class Journal:
    """The log of the stack that `vigil` works in."""

    def __init__(self, vigil: Vigil) -> None:
        self.stack = Stack(vigil.environ["VIGIL_STACK"])
        self._url = vigil.environ["VIGIL_NATS_URL"]

    def block(self, approval: Approval | None = None, wait: Wait | None = None) -> str:
        """Have an episode of `dba` wait; return its id."""
        id_ = str(uuid4())
        opened = EpisodeOpened(
            episode_id=id_,
            actor_id="dba",
            expectation_id="shrink",
            trigger=EventTrigger(event_id="e1", event_type="disk.full", payload={}),
            dedupe_key="e1",
            budget=Budget(),
        )
        reason = BlockReason.WAIT if approval is None else BlockReason.APPROVAL
        self.write(
            self.stack.episode(id_),
            opened,
            EpisodeStarted(node="gone", attempt=1, claim_revision=1),
            CheckpointSaved(checkpoint_no=0, step_no=0, phase="blocked", state=raw({})),
            EpisodeBlocked(step_no=1, reason=reason, fingerprint="f", approval=approval, wait=wait),
        )
        return id_

    def write(self, subject: str, *events: LogEvent) -> None:
        """Have `events` happen next at `subject`, in one commit."""

        async def append(ports: Ports) -> None:
            last = await ports.log.last(subject)
            after = START if last is None else last.seq
            commit = Commit(id=f"{subject}.{after}", at=CLOCK.now(), events=events)
            await ports.log.append(subject, commit, after=after)

        self._do(append)

    def tell(self, episode_id: str, *deltas: Delta) -> None:
        """Have a model of an episode say `deltas` to whoever listens."""

        async def publish(ports: Ports) -> None:
            for each in deltas:
                ports.deltas.publish(episode_id, each)

        self._do(publish)

    def index(self, episode_id: str, ref: str) -> None:
        """Have a signal of `ref` find an episode of `dba`."""
        waited = SignalWaited(
            ref=ref, actor_id="dba", episode_id=episode_id, step_no=1, since=CLOCK.now()
        )
        self.write(self.stack.signal(ref), waited)

    def pretend_node(
        self, name: str = "idle", *, revisions: Mapping[str, int] = DBA, **problems: str
    ) -> None:
        """Have everybody think that a node runs actors, by default `dba`, which does nothing.

        Args:
            name: the node's.
            revisions: actor → the revision of its definition; 0: it is declared in code.
            problems: actor → why the node cannot run its definition.
        """
        told = {f"agent.{actor}": problem for actor, problem in problems.items()}
        self._pretend(said_by(name, told, **revisions))

    def pretend_problem(self, name: str, problems: Mapping[str, str]) -> None:
        """Have everybody think that a node has no actor, and cannot run these definitions."""
        self._pretend(said_by(name, problems))

    def _pretend(self, node: NodeInfo) -> None:
        key, said = node_key(node.name), encoded(node)
        self._do(lambda ports: ports.gates.put(key, said, ttl_s=NODE_TTL_S))

    def has_command(self, episode_id: str) -> bool:
        """Return whether a command to an episode of `dba` waits for a node."""
        return self._do(lambda ports: ports.commands.is_waiting("dba", episode_id))

    def wait_command(self, episode_id: str) -> None:
        """Wait until one does."""
        deadline_s = time.monotonic() + WAIT_S
        while not self.has_command(episode_id):
            assert time.monotonic() < deadline_s, "no command was ever sent"
            threading.Event().wait(LOOK_S)

    def _do(self, act: Callable[[Ports], Awaitable[T]]) -> T:
        async def run() -> T:
            async with connect(self._url, stack=self.stack) as ports:
                return await act(ports)

        return asyncio.run(run())
