"""`vigil demo --agent`: an agent that investigates, on two nodes, one of which is killed.

It shows what happens by the journal of the episode, as it is written. An episode that was left in
the middle is gone on with the next time: its event has the same id then.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.agents.answer_text import answer_text
from engine.app.dedupe import episode_id, event_key
from engine.episodes.episode import Status
from engine.errors import InvalidAction
from engine.functions.agents import agents
from projections.errors import NotCaughtUp
from projections.postgres.pool import Pool
from projections.postgres.progress import caught_up, heads
from streams.clock import SystemClock
from streams.json import unraw
from streams.model.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeEvent,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    Resolution,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.money import dollars
from streams.ports.all import Ports
from vigil import runfile
from vigil.asking.connect import connected, pooled
from vigil.client.client import Client
from vigil.errors import Mistake, NotFound, Trouble
from vigil.printing import tables
from vigil.serving import telemetry
from vigil.serving.beside import STOP_S_MAX, console, running
from vigil.serving.demo import CATCH_UP_S_MAX, CONSOLE_S_MAX, how_to_end
from vigil.serving.exit import EXIT_S
from vigil.serving.node import projecting, run_settings
from vigil.serving.processes import command, environment
from vigil.serving.servers import Servers, embedded
from vigil.serving.signals import run_program, stopping, unwind_on_sigterm, wait_stop
from vigil.serving.stack_work import StackWork
from vigil.settings import Config, read, user

if TYPE_CHECKING:
    from engine.operations.replay import Frame
    from vigil.testing import JsonAnswer, ModelRequest, ModelServer, TextAnswer, ToolCallsAnswer

FOLDER: Final = runfile.FOLDER / "agent-demo"
FILES: Final = FOLDER / "shop"
EVENT_ID: Final = FOLDER / "event"
"""Has the id of the event whose episode has not ended yet."""

APP: Final = "vigil.demo.investigation:app"
ACTOR: Final = "folders"
EXPECTATION: Final = "folder_has_room"
EVENT: Final = "folder.filling"
CHANGES: Final = "compress.call"
"""The tool whose calls people decide on."""

NODES: Final = ("first", "second")

LEASE_S: Final = 5
"""A node that is killed is missed after so long, in seconds."""

GRACE_S: Final = 3.0

READY_S_MAX: Final = 60.0
"""Longest wait for both nodes, in seconds: each imports the agents' library."""

LOOK_S: Final = 0.05
"""Between two looks at the journal, in seconds."""

THINKS_S: Final = 0.7
"""How long the scripted model takes for an answer, in seconds."""

LOG_LINES: Final = 200_000
CACHE_BYTES: Final = 100_000

TEXT_MAX: Final = 100
"""Most characters of a result that a line shows."""

MISSING: Final = (
    "the demo with an agent needs the package {}:"
    " pip install 'vigil-engine[demo,agents]' 'pydantic-ai-slim[openai]'"
)

_CLOCK: Final = SystemClock()


def show(given: Mapping[str, object], *, model: str, approves: bool, seconds: float | None) -> None:
    """Run the demo until Ctrl-C, or for `seconds`; it stays up once its episode has ended.

    Args:
        model: what the agents ask, such as `openai:gpt-5`; empty: a scripted one, which needs no
            key.
        approves: whether to approve by itself what waits for people.

    Raises:
        Mistake: there is no such model, or its key is not here.
        Trouble: something is not installed, servers run here, the tables are another version's, or
            the episode has failed.
    """
    _require(model)
    unwind_on_sigterm()
    with runfile.locked(runfile.FOLDER), embedded(FOLDER) as servers:
        usual = {"lease_s": LEASE_S, "grace_s": GRACE_S}
        said = {name: value for name, value in given.items() if value is not None}
        config = read({**usual, **said, **servers.settings()})
        print(f"NATS      {servers.nats.url}\nPostgres  {servers.postgres.dsn}", flush=True)
        with (
            runfile.announced(runfile.FOLDER, run_settings(config)),
            (FOLDER / "vigil.log").open("a", encoding="utf-8") as log,
            console(config, FOLDER) as is_console_told,
        ):
            is_console_told.wait(CONSOLE_S_MAX)
            print(how_to_end(seconds), flush=True)
            level = config.settings.log_level
            telemetry.log_to(log, form="console", level=level, node=config.node)
            run_program(_run(config, servers, model=model, approves=approves, seconds=seconds))


def _require(model: str) -> None:
    """Raise `Trouble` or `Mistake` for what the demo lacks."""
    for package in ("pydantic_ai", *(() if model else ("openai",))):
        if find_spec(package) is None:
            raise Trouble(MISSING.format(package))
    try:
        problem = agents().problem_of_model(model) if model else ""
    except InvalidAction as missing:
        raise Trouble(str(missing)) from missing
    if problem:
        raise Mistake(f"--model {model}: {problem}")


async def _run(
    config: Config, servers: Servers, *, model: str, approves: bool, seconds: float | None
) -> None:
    stop, killed = asyncio.Event(), asyncio.Event()
    within_s = len(NODES) * STOP_S_MAX + EXIT_S
    with stopping(stop.set, abandon=servers.kill, within_s=within_s):
        async with AsyncExitStack() as entered:
            models = None if model else await entered.enter_async_context(_models(killed))
            ports = await entered.enter_async_context(connected(config, is_staying=True))
            pool = await entered.enter_async_context(pooled(config))
            await entered.enter_async_context(projecting(ports, pool, node=config.node))
            client = Client.on(ports, pool, by=user(config))
            with _nodes(config, _environ(config, model, models)) as nodes:
                story, end = _Story(client, nodes, killed, approves, stop), None
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds) as limit:
                        end = await story.tell()
                if end is None:
                    print(_GOES_ON)
                    return
                EVENT_ID.unlink(missing_ok=True)
                await _sum_up(story, ports, pool, models)
                if end.status is not EndStatus.DONE:
                    raise Trouble(f"it has failed: {end.error_class}: {end.error_detail}")
                print(
                    f"Its story has ended; the servers stay up. {how_to_end(seconds)}", flush=True
                )
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(limit.when()):
                        await stop.wait()


def _models(killed: asyncio.Event) -> ModelServer:
    from vigil.demo.scripted_model import answer, has_mended
    from vigil.testing import ModelServer

    async def script(request: ModelRequest) -> ToolCallsAnswer | JsonAnswer | TextAnswer:
        await _CLOCK.sleep(THINKS_S)
        if has_mended(request):
            await killed.wait()  # So that a node is always killed in the middle.
        return answer(request)

    return ModelServer(script, models=["scripted"])


def _environ(config: Config, model: str, models: ModelServer | None) -> Mapping[str, str]:
    from vigil.demo.investigation import SCRIPTED

    ours = {"DEMO_MODEL": model or SCRIPTED, "DEMO_FOLDER": str(FILES)}
    if models is not None:
        ours |= {"OPENAI_BASE_URL": f"{models.url}/v1", "OPENAI_API_KEY": "scripted"}
    return {**environment(config), **ours}


@contextmanager
def _nodes(
    config: Config, environ: Mapping[str, str]
) -> Iterator[Mapping[str, subprocess.Popen[bytes]]]:
    words = command(config, app=APP, work=StackWork(projects=False))
    with ExitStack() as entered:
        yield {
            name: entered.enter_context(
                running([*words, "--node-name", name], log=_log_of(name), environ=environ)
            )
            for name in NODES
        }


def _event_id() -> str:
    """Return the id of the event; a new one fills the folder first."""
    if EVENT_ID.exists():  # guard: demo-goes-on
        print("An episode was left in the middle. It goes on where it was.", flush=True)
        return EVENT_ID.read_text(encoding="utf-8")
    from vigil.demo.scripted_model import LOG

    log = FILES / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = (f"12:00:{n % 60:02} DEBUG basket {n} is the same\n" for n in range(LOG_LINES))
    log.write_text("".join(lines), encoding="utf-8")
    log.with_name(f"{log.name}.gz").unlink(missing_ok=True)
    (FILES / "cache").write_bytes(bytes(CACHE_BYTES))
    id_ = f"demo-{_CLOCK.now():%Y%m%dT%H%M%S}"
    EVENT_ID.write_text(id_, encoding="utf-8")
    return id_


@dataclass
class _Story:
    """Shows one episode as it happens, has people decide, and kills the node that runs it."""

    client: Client
    nodes: Mapping[str, subprocess.Popen[bytes]]
    killed: asyncio.Event
    approves: bool
    stop: asyncio.Event
    requests: int = 0
    """Requests to models that are on the journal."""
    _began_s: float = field(default_factory=_CLOCK.monotonic_s)
    _told: int = 0

    async def tell(self) -> EpisodeFinished | None:
        """Show the episode to its end, and return that; None: it has not ended before `stop`."""
        await self._wait_nodes()
        id_ = await self._publish()
        while not self.stop.is_set():
            frames = await self._frames(id_)
            new, self._told = frames[self._told :], len(frames)
            for each in new:
                self._say(each.event)
            if frames and isinstance(end := frames[-1].event, EpisodeFinished):
                return end
            if frames:
                await self._act(id_, frames, new)
            await wait_stop(self.stop, timeout_s=LOOK_S)
        return None

    async def _wait_nodes(self) -> None:
        """Wait for both nodes; `Trouble`: one has ended, or takes too long."""
        print(f"Waits for the nodes {' and '.join(NODES)} …", flush=True)
        until_s = _CLOCK.monotonic_s() + READY_S_MAX
        ready: Collection[str] = ()
        while not (self.stop.is_set() or set(NODES) <= {*ready}):
            for name, process in self.nodes.items():
                if process.poll() is not None:
                    raise Trouble(f"node {name} has ended; see {_log_of(name)}")
            if _CLOCK.monotonic_s() > until_s:
                raise Trouble(f"the nodes are not up after {READY_S_MAX:g} s; see {FOLDER}")
            with suppress(Trouble):
                ready = await self.client.nodes.wait_ready(ACTOR, timeout_s=0)
            await wait_stop(self.stop, timeout_s=LOOK_S)

    async def _publish(self) -> str:
        id_, payload = _event_id(), {"folder": FILES.name, "used_fraction": 0.93}
        self._line("event", f"{EVENT} {tables.as_json_line(payload)}")
        await self.client.publish(EVENT, payload, id=id_)
        stack = self.client.connections.stack.name
        return episode_id(
            stack=stack, actor=ACTOR, expectation=EXPECTATION, dedupe_key=event_key(id_)
        )

    async def _frames(self, id_: str) -> Sequence[Frame]:
        try:
            return await self.client.episodes.replay(id_)
        except NotFound:  # It is not opened yet.
            return ()

    async def _act(self, id_: str, frames: Sequence[Frame], new: Sequence[Frame]) -> None:
        last = frames[-1]
        is_asked = isinstance(last.event, EpisodeBlocked) and last.event.approval is not None
        if is_asked and last in new:
            if self.approves:
                reason = "vigil demo --yes"
                await self.client.approvals.decide(id_, "approve", reason=reason, wait_s=None)
            else:
                self._line("", "Approve it in another terminal, in this folder:")
                self._line("", f"vigil episodes approve {id_} --yes")
        node = self.nodes.get(last.episode.node)
        is_running = last.episode.status is Status.RUNNING and node is not None
        if is_running and not self.killed.is_set() and any(map(_is_amid, frames)):
            assert node is not None
            node.kill()
            self.killed.set()
            self._line("kill", f"kill -9 {node.pid}, which is node {last.episode.node}")

    def _say(self, event: EpisodeEvent) -> None:
        is_request = isinstance(event, StepRecorded) and event.kind is StepKind.MODEL_REQUEST
        self.requests += is_request
        for label, text in lines_of(event):
            self._line(label, text)

    def _line(self, label: str, text: str) -> None:
        elapsed_s = _CLOCK.monotonic_s() - self._began_s
        print(f"{elapsed_s:5.1f} s  {label:<8} {tables.printable(text)}", flush=True)


def _is_amid(frame: Frame) -> bool:
    """Return whether people have decided, and the agent goes on with that."""
    match frame.event:
        case StepAnnounced(tool_name=name):
            return name == CHANGES
        case EpisodeResolved(resolution=resolution):
            return resolution is Resolution.DENIED
        case _:
            return False


def lines_of(event: EpisodeEvent) -> Sequence[tuple[str, str]]:
    """Return what people are shown of an event: lines, each with what it is about."""
    match event:
        case EpisodeOpened():
            of = f"{event.actor_id}.{event.expectation_id}"
            return [("episode", f"{of} about {event.trigger.entity_id}")]
        case EpisodeStarted(node=node):
            return [("node", f"{node} has it")]
        case StepAnnounced(tool_name=name) if name == CHANGES:
            return [("call", f"{name} is announced, and begins")]
        case StepRecorded():
            return _lines_of_step(event)
        case EpisodeBlocked(approval=asked) if asked is not None:
            return [("waits", f"{asked.summary}; no node has it meanwhile")]
        case EpisodeResolved(resolution=resolution, by=by):
            return [("people", f"{resolution.value} by {by or 'nobody'}")]
        case EpisodeConverged(findings=findings, outputs=outputs):
            said = [
                (f"{each.finding_key}: {_short(getattr(each, 'summary', ''))}") for each in findings
            ]
            sent = [f"{each.adapter} gets {_short(unraw(each.payload))}" for each in outputs]
            return [*(("finding", each) for each in said), *(("output", each) for each in sent)]
        case EpisodeFinished(status=status, error_class=failed):
            return [("end", " ".join(filter(None, (status.value, failed))))]
        case _:
            return []


def _lines_of_step(step: StepRecorded) -> Sequence[tuple[str, str]]:
    result = unraw(step.result) if bytes(step.result) else None
    match step.kind:
        case StepKind.MODEL_REQUEST:
            said = step.error_class or answer_text(result)
            return [("model", f"answers {step.tool_name}: {said}")]
        case StepKind.TOOL_CALL:
            said = step.error_class or _short(result)
            return [("call", f"{step.tool_name} brings {said}")]
        case StepKind.AGENT:
            return [("agent", f"{step.tool_name} has ended")]
        case _:
            return []


def _short(value: object) -> str:
    text = value if isinstance(value, str) else tables.as_json_line(value)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def _log_of(node: str) -> Path:
    return FOLDER / f"{node}.log"


async def _sum_up(story: _Story, ports: Ports, pool: Pool, models: ModelServer | None) -> None:
    try:
        await caught_up(pool, ports.stack, await heads(ports), timeout_s=CATCH_UP_S_MAX)
    except NotCaughtUp as error:
        print(f"the rows are not complete yet: {error}")
    print(f"\nRequests on the journal: {story.requests}", end="")
    print(f"; the model has answered {len(models.calls)}." if models is not None else ".")
    costs = await story.client.costs(by="agent")
    if costs.total is not None and costs.total.cost_usd is not None:
        print(f"Cost of all runs in this folder: {dollars(costs.total.cost_usd)} USD.")
    print(_HOW_ON)


_GOES_ON: Final = "\nIt has not ended. Run `vigil demo --agent` again: it goes on where it was."

_HOW_ON: Final = f"""
To look at it, in another terminal, here:

  vigil episodes show --latest        what the agent did, with tokens and dollars
  vigil findings list                 what it found out
  vigil costs --by agent

Everything is kept in {FOLDER}. Once the demo is gone, this serves it again:

  vigil up --dir {FOLDER} --app {APP}
"""
