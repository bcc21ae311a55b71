"""`vigil demo`, `up`, `node`, `project`: programs that run until they are told to stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from typer import Option

from vigil import options

if TYPE_CHECKING:
    from vigil.serving.servers import Servers
from vigil.errors import Mistake
from vigil.serving.stack_work import StackWork
from vigil.settings import Config

AppName: TypeAlias = Annotated[
    str | None,
    Option(
        "--app",
        metavar="MODULE:ATTRIBUTE",
        help="The app, such as watch:app; by default that of vigil.toml.",
    ),
]

Processes: TypeAlias = Annotated[
    str, Option(metavar="N", help="Number of nodes, a process each: 1 to 64.")
]


def demo(
    ctx: typer.Context,
    *,
    seconds: Annotated[
        float | None, Option(min=1.0, help="Stop after this many seconds.", show_default=False)
    ] = None,
    is_agent: Annotated[
        bool,
        Option("--agent", help="Have an agent investigate, on two nodes, one of which is killed."),
    ] = False,
    model: Annotated[
        str,
        Option(
            help="With --agent: the model that it asks, such as openai:gpt-5, whose key is in the"
            " environment; by default a scripted one, which needs none."
        ),
    ] = "",
    is_sure: Annotated[
        bool, Option("--yes", help="With --agent: approve by itself what waits for people.")
    ] = False,
) -> None:
    """Watch this machine with actors, on own servers. Shows live findings, and SQL to try.

    With --agent: an agent finds out what fills a folder, asks before it changes anything, and goes
    on after its node was killed. Either stays up until Ctrl-C, or for --seconds, and serves the
    console meanwhile; that with an agent ends early if the agent fails.
    """
    if not is_agent and (model or is_sure):
        raise Mistake("--model and --yes go with --agent")
    if is_agent:
        from vigil.serving import agent_demo

        agent_demo.show(options.given(ctx), model=model, approves=is_sure, seconds=seconds)
        return
    from vigil.serving import demo

    demo.show(options.given(ctx), seconds=seconds)


def up(
    ctx: typer.Context,
    *,
    app: AppName = None,
    folder: Annotated[Path, Option("--dir", help="Where the servers store their data.")] = Path(
        ".vigil"
    ),
    processes: Processes = "1",
    has_console: Annotated[
        bool, Option("--console/--no-console", help="Whether to serve the console, too.")
    ] = True,
) -> None:
    """Run own NATS and Postgres servers, a node and a projector, until Ctrl-C."""
    from vigil.serving import node

    def read(servers: Servers) -> Config:
        return options.config(ctx, **servers.settings())

    run = _serving(ctx, app, processes, StackWork())
    raise typer.Exit(node.up(folder, read, run, has_console=has_console))


def node(
    ctx: typer.Context,
    *,
    app: AppName = None,
    is_projecting: Annotated[
        bool, Option("--project/--no-project", help="Whether this node takes part in projecting.")
    ] = True,
    is_reacting: Annotated[
        bool,
        Option(
            "--react/--no-react",
            help="Whether this node takes part in publishing public events and calling nodes.",
        ),
    ] = True,
    processes: Processes = "1",
    stacks: Annotated[
        str | None,
        Option(metavar="A,B", help="Several stacks instead of one: a node for each, or more."),
    ] = None,
    alone: Annotated[str | None, Option(metavar="ACTOR/EPISODE", hidden=True)] = None,
) -> None:
    """Run an engine node against existing servers, until SIGINT or SIGTERM.

    A second signal ends the node at once. Exit code 3: some episode did not reach a barrier in time
    and was left to its lease. A process that ends by itself is restarted; of several processes, the
    worst exit code counts.
    """
    if alone is not None:
        raise typer.Exit(_serve_alone(ctx, app, alone))
    work = StackWork(is_projecting, is_reacting)
    if stacks is not None:
        raise typer.Exit(_serve_each(ctx, app, processes, stacks, work))
    config = options.config(ctx)
    run = _serving(ctx, app, processes, work)
    raise typer.Exit(run(config, None))


def project(ctx: typer.Context) -> None:
    """Run a projector by itself, until SIGINT or SIGTERM."""
    from vigil.serving import node

    raise typer.Exit(node.serve(options.config(ctx), app=None, work=StackWork()))


def _serve_alone(ctx: typer.Context, typed: str | None, episode: str) -> int:
    """Run one episode that the next crash would end; nodes start this, not people."""
    from vigil.serving import node
    from vigil.serving.app import load

    name, option = options.app_name(ctx, typed)
    return node.serve_alone(options.config(ctx), app=load(name, option=option), episode=episode)


def _serving(
    ctx: typer.Context, typed: str | None, processes_wanted: str, work: StackWork
) -> Callable[[Config, Callable[[], None] | None], int]:
    """Return what runs the app in force, in this process or in several others."""
    from vigil.serving import names, node, processes
    from vigil.serving.app import load

    name, option = options.app_name(ctx, typed)
    app, count = load(name, option=option), processes.counted(processes_wanted)

    def run(config: Config, abandon: Callable[[], None] | None) -> int:
        with names.named(config, app) as known:
            if count == 1:
                return node.serve(known, app=app, app_name=name, work=work, abandon=abandon)
            return processes.supervise([known], app=name, count=count, work=work, abandon=abandon)

    return run


def _serve_each(
    ctx: typer.Context, typed: str | None, processes_wanted: str, stacks: str, work: StackWork
) -> int:
    from vigil import settings
    from vigil.serving import names, processes
    from vigil.serving.app import load

    name, option = options.app_name(ctx, typed)
    app, count = load(name, option=option), processes.counted(processes_wanted)
    configs = settings.read_each(options.given(ctx), stacks)
    with names.named_each(configs, app) as known:
        return processes.supervise(known, app=name, count=count, work=work)
