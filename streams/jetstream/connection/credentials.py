"""Credentials files as `nsc` writes them: a user's JWT, and the seed of its key.

nats-py 2.16 reads such a file while it connects, and never returns from one without a JWT. So it is
read here, at every connection: to renew it, overwrite the file.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from nats.aio.client import RawCredentials

from streams.errors import BadName, Incompatible

BYTES_MAX: Final = 64 * 1024
"""Longest such file. A JWT with many permissions has a few KiB."""

_JWT: Final = re.compile(r"-+BEGIN NATS USER JWT-+\n[\w-]+\.[\w-]+\.[\w-]+\n")
_SEED: Final = re.compile(r"-+BEGIN USER NKEY SEED-+\nSU[A-Z2-7]{56}\n")


def read_credentials(path: str) -> RawCredentials:
    """Return the credentials in the file at `path`.

    Raises:
        BadName: there are none; the message shows nothing of the file.
        Incompatible: the package is missing that signs with them.
    """
    try:
        text = _text_in(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadName(f"no credentials in {path}: {why}") from error
    for part, what in ((_JWT, "JWT"), (_SEED, "seed")):
        if not part.search(text):
            raise BadName(f"no credentials in {path}: it has no {what} of a user")
    if find_spec("nkeys") is None:
        raise Incompatible(
            "nothing here can sign with the credentials of a file",
            remedy="Install Vigil with its extra `nkeys`.",
        )
    return RawCredentials(text)


def _text_in(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(BYTES_MAX).decode().replace("\r\n", "\n")
