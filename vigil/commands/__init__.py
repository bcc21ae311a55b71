# ruff: noqa: ARG001 - typer keeps in its context what a command is given
"""The command line: one module for each group of commands.

Only the module of the command that was typed is imported, so that help and questions start fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Final, NamedTuple, NoReturn, TypeAlias

import typer
from typer import Option

from vigil.errors import EXIT_TROUBLE, EXPECTED, exit_code, in_words, only_error
from vigil.flags import DEBUG, SETTINGS, in_front
from vigil.plain_values import use_plain_values

NAME: Final = "vigil"
"""What is typed, however the program is run."""

Text: TypeAlias = str | None

_PREFIX: Final = "Value error, "


class Listed(NamedTuple):
    """A command, or a group of commands."""

    module: str
    """In this package. It has a function of the command's name, or the group as `app`."""
    help: str
    """The first sentence of the command's help."""
    is_group: bool = False


ENTRIES: Final = {
    "demo": Listed("serving.serve", "Watch this machine with actors, on own servers."),
    "up": Listed(
        "serving.serve", "Run own NATS and Postgres servers, a node and a projector, until Ctrl-C."
    ),
    "node": Listed(
        "serving.serve", "Run an engine node against existing servers, until SIGINT or SIGTERM."
    ),
    "project": Listed("serving.serve", "Run a projector by itself, until SIGINT or SIGTERM."),
    "console": Listed(
        "serving.console", "Serve the pages and the JSON API of the stack, until SIGINT or SIGTERM."
    ),
    "publish": Listed("publish", "Publish a domain event."),
    "events": Listed(
        "events", "Events: why one fired nothing, what rules would do.", is_group=True
    ),
    "apply": Listed("definitions", "Apply definition files to the running stack."),
    "fire": Listed("fire", "Open an episode by hand, now or later, and print its id."),
    "actors": Listed("actors", "Actors: list, pause, resume, define.", is_group=True),
    "mode": Listed("stack.mode", "Show the modes of nodes, or set the mode of one."),
    "orders": Listed("stack.mode", "Orders of people: list, rebuild.", is_group=True),
    "episodes": Listed("episodes", "Episodes: list, show, replay, cancel, approve.", is_group=True),
    "findings": Listed("findings", "Findings: list, show, clear, acknowledge.", is_group=True),
    "outputs": Listed("outputs", "Outputs: list, show, approve, retry, cancel.", is_group=True),
    "workflows": Listed("workflows", "Workflows: list, start, approve, cancel.", is_group=True),
    "inbox": Listed(
        "inbox", "List what waits for a person, with the command to type, oldest first."
    ),
    "decisions": Listed("decisions", "List who has approved or denied what, the latest first."),
    "costs": Listed("stack.costs", "List what requests to models have cost, the dearest first."),
    "dead": Listed("dead", "Dead letters: list, show, requeue, discard.", is_group=True),
    "retention": Listed("stack.retention", "How long things are kept, and holds.", is_group=True),
    "recover": Listed(
        "repairs.repair", "Restart episodes and workflow instances that no node is running."
    ),
    "reconcile": Listed(
        "repairs.repair", "End what no live node declares any more, and start new schedules."
    ),
    "repartition": Listed(
        "repairs.layout", "Spread a stopped stack over another number of streams."
    ),
    "archive": Listed(
        "stack.archive", "The archive of the journal: run, list, verify, restore.", is_group=True
    ),
    "uncompress": Listed("repairs.layout", "Store the streams of a stopped stack uncompressed."),
    "export": Listed(
        "stack.export",
        "Write a list as CSV, JSON lines or Parquet, with the filters of the list, page by page.",
    ),
    "backup": Listed(
        "repairs.backup", "Backups of a whole stack: create, verify, restore.", is_group=True
    ),
    "encrypt": Listed(
        "stack.erasure",
        "Encrypt what is written about subjects of some kinds, so that it can be erased.",
    ),
    "erase": Listed(
        "stack.erasure",
        "Destroy the key of a subject's data: contents are gone, ids and counts stay.",
    ),
    "projections": Listed(
        "stack.projections", "The tables as a whole: status, rebuild, verify.", is_group=True
    ),
    "sql": Listed("stack.sql", "Query the tables with SQL."),
    "check": Listed(
        "stack.check",
        "Import an app, and list code that cannot be replayed and names that do not exist.",
    ),
    "mcp": Listed(
        "serving.mcp", "MCP: serve a stack, pins of the tools of servers.", is_group=True
    ),
    "lab": Listed(
        "serving.lab",
        "Run recorded episodes with the code of today, asking models anew, and tell which differ.",
    ),
    "users": Listed("people.users", "People: add, list, roles, groups, passwords.", is_group=True),
    "tokens": Listed("people.tokens", "Tokens of programs: issue, list, revoke.", is_group=True),
    "login": Listed(
        "people.login", "Sign in to a stack, for the commands of this user on this machine."
    ),
    "logout": Listed(
        "people.login", "Sign out of a stack, and forget on this machine who has signed in."
    ),
    "whoami": Listed(
        "people.login",
        "Show who has signed in to a stack here, and whether the stack wants to know.",
    ),
    "doctor": Listed("repairs.doctor", "Check settings, servers, streams and tables."),
}


def whole() -> typer.Typer:
    """Return the command line with every command loaded."""
    return _app(ENTRIES)


def run(arguments: Sequence[str]) -> NoReturn:
    """Run the command in `arguments`, and exit; expected errors are one line on stderr."""
    words = in_front(arguments)
    is_debugging = DEBUG in words or bool(os.environ.get("VIGIL_DEBUG"))
    command = command_for(frozenset(words).intersection(ENTRIES))
    try:
        code = command(args=words, prog_name=NAME, standalone_mode=False)
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
    sys.exit(code)


@cache
def command_for(loaded: frozenset[str]) -> Callable[..., int | None]:
    """Return the command line with commands `loaded`; a process makes it once."""
    command = typer.main.get_command(_app(loaded))
    use_plain_values(command)
    return command


def _app(loaded: Collection[str]) -> typer.Typer:
    app = typer.Typer(
        name=NAME,
        help="Operational checks that survive crashes: check, investigate, ask people, act, record"
        " findings and notify. On NATS JetStream and Postgres.",
        epilog="Options may stand anywhere. VIGIL_* variables and vigil.toml set them, too.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_shared)
    for name, entry in ENTRIES.items():
        module = import_module(f"{__name__}.{entry.module}") if name in loaded else None
        if module is None:
            app.command(name, short_help=entry.help)(_not_loaded)
        elif entry.is_group:
            app.add_typer(module.app, name=name, help=entry.help)
        else:
            app.command(name)(getattr(module, name))
    return app


def _not_loaded() -> None:
    raise AssertionError("only commands that are not typed are left out")


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer hands it over by position
    if asked:
        from vigil.version import vigil_version

        print(f"vigil {vigil_version()}")
        raise typer.Exit


def _shared(
    ctx: typer.Context,
    *,
    nats_url: Annotated[Text, Option(help="NATS servers, separated by commas.")] = None,
    nats_creds: Annotated[Text, Option(help="A file of credentials for NATS.")] = None,
    nats_inbox: Annotated[
        Text, Option(metavar="PREFIX", help="Prefix of the subjects that receive replies of NATS.")
    ] = None,
    nats_domain: Annotated[Text, Option(help="The JetStream domain of the streams.")] = None,
    postgres_dsn: Annotated[Text, Option(help="The Postgres database that has the tables.")] = None,
    stack: Annotated[
        Text, Option(help="The stack: the logical cluster, first word of every subject.")
    ] = None,
    env: Annotated[
        Text, Option(help="A label that makes a stack of its own: <stack>-<env>.")
    ] = None,
    node: Annotated[
        Text, Option("--node-name", help="The name of this process, unique in the stack.")
    ] = None,
    lease_s: Annotated[Text, Option(help="How long a lease lasts, in seconds.")] = None,
    grace_s: Annotated[
        Text, Option(help="How long a stopping node waits for its episodes, in seconds.")
    ] = None,
    mode: Annotated[
        Text, Option(help="The mode of a node: full, trigger_only or disabled.")
    ] = None,
    serve_stacks: Annotated[
        Text, Option(metavar="A,B", help="Other stacks whose episodes the node runs, too.")
    ] = None,
    replicas: Annotated[Text, Option(help="Replicas of new streams.")] = None,
    partitions: Annotated[
        Text,
        Option(help="Partitions of a new stack: streams that it is spread over; by default one."),
    ] = None,
    results_days: Annotated[
        Text, Option(help="Days for which a new stack keeps large results after their last use.")
    ] = None,
    log: Annotated[Text, Option(help="Format of log lines: console or json.")] = None,
    log_level: Annotated[
        Text, Option(help="Lowest level of log lines: debug, info, warning or error.")
    ] = None,
    debug: Annotated[bool, Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Keep the flags for all commands."""
    ctx.obj = {name: ctx.params[name] for name in SETTINGS.values()}
    from vigil.settings import misspelt

    for problem in misspelt(os.environ):  # guard: misspelt-variable-told
        print(f"vigil: warning: {problem}", file=sys.stderr)


def _refuse(error: typer.TyperException) -> NoReturn:
    """Exit with what is wrong about the command line, or with the help of a group."""
    ctx: typer.Context | None = getattr(error, "ctx", None)
    wrong = error.format_message().replace(_PREFIX, "").strip()
    if ctx is not None and wrong == ctx.get_help().strip():
        print(wrong)
    elif wrong:
        stop = "" if wrong.endswith((".", "?")) else "."
        command = NAME if ctx is None else ctx.command_path
        print(f"vigil: {wrong}{stop} `{command} --help` says more.", file=sys.stderr)
    sys.exit(error.exit_code)


def _end(error: Exception, raised: Exception, *, is_debugging: bool) -> None:
    if is_debugging:
        raise raised
    print(f"vigil: {in_words(error)}", file=sys.stderr)
    sys.exit(exit_code(error))
