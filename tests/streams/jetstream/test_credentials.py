"""A file of credentials: what is none is said at once, and what is one lets us in."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

from streams.embedded import EmbeddedNats
from streams.errors import BadName, Incompatible, Unavailable
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection import credentials
from streams.jetstream.connection.credentials import read_credentials
from tests.contracts.samples import commit

SEED: Final = f"SU{'A' * 56}"
FILE: Final = """\
-----BEGIN NATS USER JWT-----
{jwt}
------END NATS USER JWT------

************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""

LIMITED: Final = (
    *("subs", "data", "payload", "imports", "exports", "conn", "leaf"),
    *("mem_storage", "disk_storage", "streams", "consumer"),
)
"""What an account may have no more of; -1 is as much as it likes."""


def written(path: Path, *, jwt: str = "a.b.c", seed: str = SEED) -> str:
    path.write_text(FILE.format(jwt=jwt, seed=seed))
    return str(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (FILE.format(jwt="a.b", seed=SEED), "it has no JWT of a user"),
        (FILE.format(jwt="a.b.c", seed="secret"), "it has no seed of a user"),
        (FILE.partition("\n\n")[0].format(jwt="a.b.c"), "it has no seed of a user"),
        ("", "it has no JWT of a user"),
        ("\udcff", "it is not text"),
    ],
)
def test_what_holds_no_credentials_is_refused_and_none_of_it_is_shown(tmp_path, text, problem):
    path = tmp_path / "node.creds"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadName, match=f"no credentials in {path}: {problem}") as refused:
        read_credentials(str(path))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("what", ["nothing", "a folder"])
async def test_a_file_that_cannot_be_read_is_one_clear_line_at_once(nats, stack, tmp_path, what):
    path = tmp_path / "missing" if what == "nothing" else tmp_path
    with pytest.raises(BadName, match=f"no credentials in {path}: ") as refused:
        async with connect(nats.url, stack=stack, settings=LinkSettings(creds=str(path))):
            pass
    assert "\n" not in str(refused.value)


def test_the_lines_may_end_as_on_windows(tmp_path):
    pytest.importorskip("nkeys")
    path = tmp_path / "node.creds"
    path.write_bytes(FILE.format(jwt="a.b.c", seed=SEED).replace("\n", "\r\n").encode())
    assert SEED in read_credentials(str(path))


def test_without_the_package_that_signs_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "find_spec", lambda _: None)
    with pytest.raises(Incompatible, match="Install Vigil with its extra `nkeys`"):
        read_credentials(written(tmp_path / "node.creds"))


class Key:
    """A key pair of NATS, of a sort that its public part begins with."""

    def __init__(self, sort: str, number: int) -> None:
        nkeys = pytest.importorskip("nkeys")
        prefix = getattr(nkeys, f"PREFIX_BYTE_{sort}")
        self.seed = nkeys.encode_seed(sha256(bytes([number])).digest(), prefix)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = self._pair.public_key.decode()

    def signed(self, of: Key, **claims: object) -> str:
        """Return a JWT about `of`, which this key has signed."""
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        body = {"jti": of.public, "iat": 1, "iss": self.public, "sub": of.public, "name": "x"}
        text = f"{_part(head)}.{_part({**body, 'nats': {'version': 2, **claims}})}"
        return f"{text}.{_base64(self._pair.sign(text.encode()))}"


def _part(value: object) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


async def test_a_file_of_credentials_lets_a_node_in_and_another_one_does_not(tmp_path, stack):
    operator, account, system = Key("OPERATOR", 1), Key("ACCOUNT", 2), Key("ACCOUNT", 3)
    node, stranger = Key("USER", 4), Key("USER", 5)
    limits = {**dict.fromkeys(LIMITED, -1), "wildcards": True}
    config = f"""
    operator: {operator.signed(operator, type="operator")}
    system_account: {system.public}
    resolver: MEMORY
    resolver_preload {{
        {account.public}: {operator.signed(account, type="account", limits=limits)}
        {system.public}: {operator.signed(system, type="account")}
    }}
    """
    user = {"type": "user", "subs": -1, "data": -1, "payload": -1}
    jwt = account.signed(node, **user)
    ours = written(tmp_path / "ours", jwt=jwt, seed=node.seed.decode())
    theirs = written(tmp_path / "theirs", jwt=jwt, seed=stranger.seed.decode())
    with EmbeddedNats(tmp_path / "nats", extra_config=config) as server:
        settings = LinkSettings(creds=ours)
        async with connect(server.url, stack=stack, settings=settings, is_for_node=True) as ports:
            await ports.log.append(ports.stack.episode("e1"), commit("c1"), after=0)
        with pytest.raises(Unavailable, match="Authorization Violation"):
            async with connect(server.url, stack=stack, settings=LinkSettings(creds=theirs)):
                pass
