"""The logins of one user on this machine: what shows a stack who somebody is.

They are in `logins.json`, in the folder `vigil` of the user's configuration, for this user's eyes
alone; `VIGIL_LOGIN` has one for a program instead. A login is of one stack on one server.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from streams.errors import Incompatible
from streams.json import UNDECODABLE
from streams.keys import LOGIN
from streams.model.events import LoginRequired
from vigil.errors import Mistake, NotSignedIn, Trouble
from vigil.settings import Config, shown

if TYPE_CHECKING:
    from engine.people.identity import Identity
    from streams.model.people import Role
    from streams.ports.all import Ports

VARIABLE: Final = "VIGIL_LOGIN"
"""Has the secret of a session or of a token."""

SCOPE: Final = "commands"
"""What a token with scopes has to have for the command line."""

_SIGN_IN: Final = "run `vigil login`"

FILE_BYTES_MAX: Final = 1_048_576
"""Of the file with the logins."""

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
"""What nobody but the user may do with that file."""


class KeptLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A login that is kept on this machine."""

    name: str
    secret: str
    expires_at: datetime | None = None
    """None: it is not known here."""


async def is_login_required(ports: Ports) -> bool:
    """Return whether people have to sign in before they order something of the stack.

    Who may not even read that has an account of the server for a few things, such as publishing:
    what that one may do is a matter of the server's permissions, which are the border in any case.
    """
    try:
        newest = await ports.log.last(ports.stack.order(LOGIN))
    except Incompatible:  # guard: narrow-account-needs-no-login
        return False
    return newest is not None and isinstance(newest.commit.events[-1], LoginRequired)


def path() -> Path:
    """Return where the logins are."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(configured) if configured.startswith("/") else Path.home() / ".config"
    return folder / "vigil" / "logins.json"


def secret_for(config: Config) -> str | None:
    """Return the secret to show to the stack of the settings; None: there is none here.

    Raises `Trouble` if others may read the file, or it cannot be read.
    """
    if given := os.environ.get(VARIABLE, "").strip():
        return given
    found = _read().get(_key(config))
    return None if found is None else found.secret


async def login_for(
    config: Config,
    role: Role,
    *,
    identify: Callable[[str], Awaitable[Identity | None]],
    typed: str | None,
) -> Identity:
    """Return who has signed in here, for what takes `role`; the errors are those of a command."""
    secret = secret_for(config)
    if secret is None:
        raise NotSignedIn("this stack wants to know who orders something", remedy=_SIGN_IN)
    who = await identify(secret)
    if who is None:
        raise NotSignedIn("your login is over", remedy=_SIGN_IN)
    if not who.may(role, SCOPE):  # guard: command-for-its-role
        says = f"this takes the role {role}, and {who.name!r} is {who.role}"
        scopes = "" if who.scopes is None else f", for {', '.join(sorted(who.scopes))} alone"
        raise Trouble(f"{says}{scopes}")
    if typed is not None and typed != who.name:  # guard: by-is-the-login
        raise Mistake(f"--by: you are signed in as {who.name!r}, and nobody else; leave it out")
    return who


def keep(config: Config, login: KeptLogin | None) -> None:
    """Keep the login of the stack of the settings; None: forget it."""
    logins = {key: each for key, each in _read().items() if key != _key(config)}
    if login is not None:
        logins[_key(config)] = login
    _write(logins)


def _key(config: Config) -> str:
    return f"{config.stack.name} at {shown('nats_url', config.settings.nats_url)}"


def _read() -> Mapping[str, KeptLogin]:
    file = path()
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            data = opened.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Trouble(f"{file}: {error.strerror or error}") from error
    if mode & OTHERS:  # guard: open-logins-refused
        raise Trouble(f"{file}: others may read your logins", remedy=f"run `chmod 600 {file}`")
    try:
        return msgspec.json.decode(data, type=dict[str, KeptLogin])
    except UNDECODABLE as error:
        raise Trouble(f"{file}: no logins: {error}", remedy="remove it, and sign in") from error


def _write(logins: Mapping[str, KeptLogin]) -> None:
    file = path()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Only this user may read what `mkstemp` makes, from the first moment on.
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".logins-")
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(msgspec.json.format(msgspec.json.encode(logins)) + b"\n")
            Path(name).replace(file)
        except OSError:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise Trouble(f"{file}: {error.strerror or error}") from error
