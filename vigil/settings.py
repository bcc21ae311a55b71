"""Settings, and where each of them comes from.

    a flag  ▶  VIGIL_* in the environment  ▶  vigil.toml here  ▶  .vigil/run.toml  ▶  the default

The first that has one wins. A key of `vigil.toml` is the variable's name in small letters.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from streams.errors import BadName
from streams.jetstream.connection.servers import parse_servers
from streams.layout import PARTITIONS_MAX
from streams.ports.objects import DAYS
from streams.subjects import Stack
from streams.tokens import name as checked_name
from vigil import flags, runfile
from vigil.errors import Mistake

if TYPE_CHECKING:
    from streams.model.retention import Retention

FILE: Final = "vigil.toml"
OIDC: Final = "oidc"
RETENTION: Final = "retention"
ARCHIVE: Final = "archive"
TABLES: Final = frozenset({OIDC, RETENTION, ARCHIVE})
"""Tables of the file that are no settings: what has them reads them."""

PREFIX: Final = "VIGIL_"
ENVIRONMENT: Final = "environment"
"""Where a setting comes from that a variable has."""

LIKENESS: Final = 0.9
"""How like a setting a variable must be to be taken for a misspelt one, as `difflib` measures it.
VIGIL_NDOE is 0.9 like VIGIL_NODE; VIGIL_NATS_URL_FILE is 0.85 like VIGIL_NATS_URL, and is not."""


WAIT_S: Final = 3_600.0
"""How long to wait by default for the ends of episodes, if they are waited for, in seconds."""

ROLLOUT_S: Final = 10.0
"""How long to wait by default until nodes have said what they make of a definition, in seconds."""

DECISION_S: Final = 30.0
"""How long to wait by default until a request is on the journal, in seconds."""

CONSOLE_PORT: Final = 8_321
"""Where the console listens by default."""

BY_CHARS_MAX: Final = 200
"""Longest name of a person that is kept."""

NODE_NAME_CHARS_MAX: Final = 64
"""Longest name of a node, as `streams.tokens.name` has it."""

SIBLING_CHARS: Final = 3
"""Left free in a name that is made here: `-64` tells one of several processes."""

SECRET: Final = frozenset({"nats_url", "postgres_dsn"})
"""May hold a password: never shown as they are."""

_CREDENTIALS: Final = re.compile(r"(//|^|,)[^/,]*(@)|(?<=password=)[^&]*()")
"""Between // and the @ of a server; a password in the query of a DSN."""

_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def _stacks(text: str) -> str:
    names = listed(text)
    for name in names:
        try:
            Stack(name)
        except BadName as error:
            raise ValueError(str(error)) from error
    if len(set(names)) < len(names):
        raise ValueError("it names a stack twice")
    return text


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise ValueError("use words of A-Z a-z 0-9 _ - joined by dots")
    return text


def _domain(text: str) -> str:
    if "." in text:
        raise ValueError("use one word of A-Z a-z 0-9 _ -")
    return _prefix(text) if text else text


def listed(text: str) -> list[str]:
    """Return what is between the commas of `text`."""
    return [word.strip() for word in text.split(",")] if text.strip() else []


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may choose."""

    app: str = ""
    """The app that a node runs, such as `watch:app`: module and attribute, looked up in the current
    folder."""
    nats_url: str = "nats://127.0.0.1:4222"
    """One server, or several of a cluster, separated by commas."""
    nats_creds: str = ""
    """A file of credentials, as `nsc` writes it. A user and a password are part of the URL."""
    nats_inbox: str = "_INBOX"
    """Where answers go: the beginning of the subjects that this user may subscribe to."""
    nats_domain: str = ""
    """The JetStream domain that has the streams. Empty: that of the server we connect to."""
    postgres_dsn: str = "postgresql://127.0.0.1:5432/vigil"
    stack: str = "vigil"
    """The logical cluster: first word of every subject."""
    env: str = ""
    """A label such as `qa`. It makes a stack of its own: `<stack>-<env>`."""
    node: str = ""
    """This process's name, unique in the stack. Empty: the app's, or one that is made here."""
    lease_s: Annotated[int, Meta(ge=1, le=3600)] = 30
    """Longest that a dead node can block an episode, in seconds. The server counts whole ones, and
    ends a lease about a second late if no other node is up that does it."""
    grace_s: Annotated[float, Meta(ge=0, le=3600)] = 30.0
    """How long a stopping node waits for its episodes to reach a barrier, in seconds."""
    mode: Literal["full", "trigger_only", "disabled"] = "full"
    """What a node does: wake actors and run episodes, only wake, or neither; see `vigil mode`."""
    serve_stacks: str = ""
    """Other stacks on the same servers, separated by commas, each with its `env` if it has one:
    a node runs the episodes of its actors there as well, and wakes nobody."""
    replicas: Literal[1, 3, 5] = 1
    """Copies of every stream, used when it is created."""
    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] | None = None
    """Streams that a new stack is spread over, 1 by default; another stack must have as many."""
    results_days: Annotated[int, Meta(ge=1, le=3650)] = DAYS
    """How long large results of tools are kept after their last use, in days, used when the object
    store is created. An episode that waits longer cannot use them any more."""
    log: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"


DEFAULTS: Final = {each.name: each.default for each in msgspec.structs.fields(Settings)}
TYPES: Final = get_type_hints(Settings, include_extras=True)

CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    "nats_url": parse_servers,
    "nats_inbox": _prefix,
    "nats_domain": _domain,
    "serve_stacks": _stacks,
}
"""What checks the text of a setting: it raises a `ValueError` or a `BadName`."""


@dataclass(frozen=True)
class Config:
    """The settings in force, and for each the place that it comes from."""

    settings: Settings
    origins: Mapping[str, str]
    stack: Stack
    node: str
    serves: tuple[Stack, ...]
    """The other stacks whose episodes a node runs."""
    is_node_reserved: bool = False
    """Whether a lock says that no other process has the node's name."""


def read(
    given: Mapping[str, object], *, folder: Path | None = None, given_as: str = "flag"
) -> Config:
    """Return the settings in force, where `given` are those of the command line.

    Args:
        given: setting → value; one that is None was not given.
        given_as: what an error calls one of them.
        folder: where `vigil.toml` and `.vigil/` are looked for; the current one by default.

    Raises `Mistake` for a setting that cannot work, or is not known; it names it and its place.
    """
    values: dict[str, object] = {}
    origins = dict.fromkeys(DEFAULTS, "default")
    for place, said in _layers(given, folder or Path(), given_as):
        fresh = {key: value for key, value in said.items() if key not in values}
        values |= fresh
        origins |= dict.fromkeys(fresh, place)
    settings = Settings(**{key: _value(key, each, origins[key]) for key, each in values.items()})
    try:
        name = f"{settings.stack}-{settings.env}" if settings.env else settings.stack
        stack = Stack(name)
        node, serves = _node(settings), tuple(map(Stack, listed(settings.serve_stacks)))
    except BadName as error:
        raise Mistake(str(error)) from error
    if stack.name in {each.name for each in serves}:
        raise Mistake(f"serve_stacks: {stack.name!r} is the stack that the node is of")
    return Config(settings, origins, stack, node, serves)


def read_each(given: Mapping[str, object], stacks: str) -> list[Config]:
    """Return the settings for each of the `stacks` between commas, as if `--stack` named it.

    Raises `Mistake` if a setting cannot work, `--stack` is given, or none is named, or one twice.
    """
    names = listed(stacks)
    if given.get("stack") is not None:
        raise Mistake("--stack and --stacks: say one of them")
    if not names or len(set(names)) < len(names):
        raise Mistake(f"--stacks {stacks!r}: name stacks with commas between, each once")
    return [read({**given, "stack": name}) for name in names]  # guard: node-of-own-stack


def misspelt(environ: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each variable that is nearly one of ours; VIGIL_MODEL is somebody's."""
    ours = {PREFIX + key.upper() for key in DEFAULTS}
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in ours:
            for near in get_close_matches(name, ours, n=1, cutoff=LIKENESS):
                if not name.startswith(near):
                    yield f"{name} is no setting, and is ignored; did you mean {near}?"


def user(config: Config) -> str:
    """Return who gives orders if nobody is named: the user, or what this program is called."""
    try:
        return getpass.getuser()[:BY_CHARS_MAX]
    except (KeyError, OSError):  # A container may run as a number that has no name.
        return config.node


def shown(key: str, value: object) -> str:
    """Return the setting as it may be shown: without users, passwords and tokens."""
    said = "" if value is None else str(value)
    return _CREDENTIALS.sub(r"\1…\2", said) if key in SECRET else said


def _node(settings: Settings) -> str:
    if settings.node:
        return checked_name(settings.node, of="node")
    suffix = f"-{os.getpid()}"
    return host_name(room_for=suffix) + suffix


def host_name(*, room_for: str) -> str:
    """Return this machine's name, as far as a node's name may have it, with room for more."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", platform.node())
    return host[: NODE_NAME_CHARS_MAX - SIBLING_CHARS - len(room_for)]


def _layers(
    given: Mapping[str, object], folder: Path, given_as: str
) -> list[tuple[str, Mapping[str, Any]]]:
    flagged = {key: value for key, value in given.items() if value is not None}
    said = {name.upper(): value for name, value in os.environ.items() if value}
    variables = {key: said[name] for key in DEFAULTS if (name := PREFIX + key.upper()) in said}
    return [
        (given_as, flagged),
        (ENVIRONMENT, variables),
        (FILE, _table(folder / FILE)),
        (str(runfile.PATH), runfile.read(folder / runfile.PATH)),
    ]


def table_in(path: Path, name: str) -> Mapping[str, Any] | None:
    """Return a table of `vigil.toml` that is no setting; None: there is none of that name."""
    found = _toml(path).get(name)
    if found is not None and not isinstance(found, dict):
        raise Mistake(f"{path}: {name}: write it as a table: [{name}]")
    return found


def retention_in(path: Path) -> Retention | None:
    """Return how long things are kept by `[retention]` of `vigil.toml`; None: it has no such table.

    Raises `Mistake` if they cannot be kept so.
    """
    table = table_in(path, RETENTION)
    if table is None:
        return None
    # What needs no engine loads none.
    from engine.app.checks import problem_of_retention
    from streams.model.retention import Retention

    known = Retention.__struct_fields__
    if stray := [each for each in table if each not in known]:
        near = get_close_matches(stray[0], known, n=1)
        told = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise Mistake(f"{path}: {RETENTION}: there is no {stray[0]!r}; {told}")
    retention = Retention(**table)
    if problem := problem_of_retention(retention):
        raise Mistake(f"{path}: {RETENTION}: {problem}")
    return retention


def kept_times(path: Path) -> Mapping[str, int] | None:
    """Return what `retention_in` does, as seconds by name; None: there is no such table."""
    kept = retention_in(path)
    if kept is None:
        return None
    from engine.app.checks import kept_of

    return kept_of(kept)


def _table(path: Path) -> Mapping[str, Any]:
    return {key: value for key, value in _toml(path).items() if key not in TABLES}


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Mistake(f"{path} is not TOML: {error}") from error


def _value(key: str, given: object, place: str) -> Any:  # noqa: ANN401 - each has its own type
    if key not in DEFAULTS:
        near = get_close_matches(key.lower(), [*DEFAULTS, *TABLES], n=1)
        known = f"did you mean {near[0]}?" if near else f"known: {', '.join(DEFAULTS)}"
        raise Mistake(f"{place}: there is no setting {key!r}; {known}")
    try:
        value = _converted(key, given)
        CHECKS.get(key, str)(value)
    except (ValueError, BadName) as error:
        said = "" if key in SECRET else f" = '{given}'"
        raise Mistake(f"{_name_in(place, key)}{said}: {error}") from error
    return value


def _converted(key: str, given: object) -> Any:  # noqa: ANN401 - each has its own type
    """Return a setting as its type has it: flags and variables are text, numbers too."""
    type_ = TYPES[key]
    if get_origin(type_) is Literal:
        for choice in get_args(type_):
            if str(given) == str(choice):
                return choice
        raise ValueError(f"use one of {', '.join(map(str, get_args(type_)))}")
    try:
        return msgspec.convert(given, type_, strict=not isinstance(given, str) or type_ is str)
    except msgspec.ValidationError as error:
        least, most = bounds(key) or (None, None)
        kind = "a number" if isinstance(DEFAULTS[key], float) else "a whole number"
        raise ValueError(
            "use text" if most is None else f"use {kind} from {least:g} to {most:g}"
        ) from error


def bounds(key: str) -> tuple[float, float] | None:
    """Return the least and the most that the number of a setting may be; None: it is no number."""
    for each in (TYPES[key], *get_args(TYPES[key])):
        for meta in getattr(each, "__metadata__", ()):
            return meta.ge, meta.le
    return None


def _name_in(place: str, key: str) -> str:
    match place:
        case _ if place == ENVIRONMENT:
            return PREFIX + key.upper()
        case "flag":
            return next(flag for flag, setting in flags.SETTINGS.items() if setting == key)
        case _:
            return f"{place}: {key}"
