"""The `vigil` command. See `vigil` for its exit codes."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Final, NoReturn

import typer

from vigil import flags
from vigil.cli import actors, dead, episodes, findings, outputs, serving, workflows
from vigil.cli.apply import apply
from vigil.cli.doctor import doctor
from vigil.cli.fire import fire
from vigil.cli.inbox import inbox
from vigil.cli.mode import mode
from vigil.cli.publish import publish
from vigil.cli.reconcile import reconcile
from vigil.cli.recover import recover
from vigil.cli.repartition import repartition
from vigil.cli.sql import sql
from vigil.errors import EXIT_TROUBLE, EXPECTED, exit_code, one_line, only_error, remedy

NAME: Final = "vigil"
"""What is typed, however the program is run."""

_PREFIX: Final = "Value error, "
"""What typer's own checks put before what is wrong."""

app = typer.Typer(
    name=NAME,
    help="An event-sourced engine for autonomous actors.",
    epilog="The options above may stand anywhere. VIGIL_* variables and vigil.toml say the same.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serving.demo)
app.command()(serving.up)
app.command()(serving.node)
app.command()(serving.project)
app.command()(publish)
app.command()(apply)
app.command()(fire)
app.add_typer(actors.app, name="actors")
app.command()(mode)
app.add_typer(episodes.app, name="episodes")
app.add_typer(findings.app, name="findings")
app.add_typer(outputs.app, name="outputs")
app.add_typer(workflows.app, name="workflows")
app.command()(inbox)
app.add_typer(dead.app, name="dead")
app.command()(recover)
app.command()(reconcile)
app.command()(repartition)
app.command()(sql)
app.command()(doctor)


def _say_version(asked: bool) -> None:  # noqa: FBT001 - typer hands it over by position
    if asked:
        from vigil.version import vigil_version

        print(f"vigil {vigil_version()}")
        raise typer.Exit


@app.callback()
def _shared(
    ctx: typer.Context,
    *,
    nats_url: Annotated[str | None, typer.Option(help="NATS servers, separated by commas.")] = None,
    nats_creds: Annotated[str | None, typer.Option(help="A credentials file for NATS.")] = None,
    nats_inbox: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Prefix of the reply subjects.")
    ] = None,
    nats_domain: Annotated[
        str | None, typer.Option(help="The JetStream domain of the streams.")
    ] = None,
    postgres_dsn: Annotated[
        str | None, typer.Option(help="The Postgres database of the tables.")
    ] = None,
    stack: Annotated[str | None, typer.Option(help="Name of the stack.")] = None,
    env: Annotated[
        str | None, typer.Option(help="Suffix of the stack's name: <stack>-<env>.")
    ] = None,
    node_name: Annotated[str | None, typer.Option(help="Name of this node.")] = None,
    lease_s: Annotated[str | None, typer.Option(help="Lifetime of a lease, in seconds.")] = None,
    grace_s: Annotated[
        str | None, typer.Option(help="How long a stopping node waits for its steps, in seconds.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="Mode of the node: full, trigger_only or disabled.")
    ] = None,
    serve_stacks: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Other stacks whose episodes this node runs, too."),
    ] = None,
    replicas: Annotated[str | None, typer.Option(help="Number of replicas of new streams.")] = None,
    partitions: Annotated[
        str | None, typer.Option(help="Number of partitions of a new stack; by default one.")
    ] = None,
    log: Annotated[str | None, typer.Option(help="console or json.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning, error.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,  # noqa: ARG001 - `main` reads it
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool,
        typer.Option("--version", is_eager=True, callback=_say_version, help="Print the version."),
    ] = False,
) -> None:
    """Take note of the flags for all commands."""
    ctx.obj = {
        "nats_url": nats_url,
        "nats_creds": nats_creds,
        "nats_inbox": nats_inbox,
        "nats_domain": nats_domain,
        "postgres_dsn": postgres_dsn,
        "stack": stack,
        "env": env,
        "node": node_name,
        "lease_s": lease_s,
        "grace_s": grace_s,
        "mode": mode,
        "serve_stacks": serve_stacks,
        "replicas": replicas,
        "partitions": partitions,
        "log": log,
        "log_level": log_level,
    }


def main() -> None:
    """Run the command that was typed; what is expected to go wrong is one line on stderr."""
    arguments = flags.in_front(sys.argv[1:])
    is_debugging = flags.DEBUG in arguments or bool(os.environ.get("VIGIL_DEBUG"))
    try:
        code = app(args=arguments, prog_name=NAME, standalone_mode=False)
    except typer.TyperException as error:
        _refuse(error)
    except typer.Abort:
        print("vigil: nothing was done", file=sys.stderr)
        sys.exit(EXIT_TROUBLE)
    except EXPECTED as error:
        _end(error, error, is_debugging=is_debugging)
    except ExceptionGroup as group:
        wrapped = only_error(group)
        if wrapped is None:
            raise
        _end(wrapped, group, is_debugging=is_debugging)
    else:
        sys.exit(code)


def _refuse(error: typer.TyperException) -> NoReturn:
    """End with what is wrong about the words that were typed; empty: help was shown instead."""
    wrong = error.format_message().replace(_PREFIX, "").strip()
    if wrong:
        ctx: typer.Context | None = getattr(error, "ctx", None)
        stop = "" if wrong.endswith((".", "?")) else "."
        command = NAME if ctx is None else ctx.command_path
        print(f"vigil: {wrong}{stop} `{command} --help` says more.", file=sys.stderr)
    sys.exit(error.exit_code)


def _end(error: Exception, raised: Exception, *, is_debugging: bool) -> None:
    if is_debugging:
        raise raised
    print(f"vigil: {one_line(error)}{remedy(error)}", file=sys.stderr)
    sys.exit(exit_code(error))


if __name__ == "__main__":
    main()
