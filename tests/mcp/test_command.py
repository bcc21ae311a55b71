"""`vigil mcp serve`, as it is typed: what it refuses, and what it needs."""

from __future__ import annotations

import pytest

from tests.vigil.program import NOWHERE, Vigil
from tests.vigil.test_no_extras import run_without_extras
from vigil.commands.serving.mcp import checked_url, parse_address
from vigil.errors import Mistake

LOUD = """
from vigil import Actor, App, manual
print("I am here")
a = Actor("a")
@a.expectation(on=manual())
async def nothing(ctx, trigger): ...
app = App(actors=[a])
"""


@pytest.fixture
def vigil(tmp_path) -> Vigil:
    return Vigil(tmp_path, **NOWHERE)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:8090"])
def test_alone_it_listens_on_loopback_only(vigil: Vigil, address: str):
    done = vigil.run("mcp", "serve", "--http", address)
    assert (done.returncode, done.stdout) == (2, "")
    assert "without tokens the server listens on loopback only; use 127.0.0.1" in done.stderr


@pytest.mark.parametrize("text", ["8090", "127.0.0.1", ":8090", "127.0.0.1:x", "127.0.0.1:70000"])
def test_an_address_is_a_host_and_a_port(text: str):
    with pytest.raises(Mistake, match="write HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:8090", ("::1", 8090))],
)
def test_an_address_may_be_of_either_protocol(text: str, address: tuple[str, int]):
    assert parse_address(text) == address


@pytest.mark.parametrize("url", ["vigil.example.com", "ftp://vigil.example.com", "https://"])
def test_the_address_of_a_console_is_one_of_a_browser(url: str):
    with pytest.raises(Mistake, match="--console-url"):
        checked_url(url)


def test_the_address_of_a_console_may_end_with_a_slash():
    assert checked_url("https://vigil.example.com/") == "https://vigil.example.com"


def test_nothing_else_than_acting_can_be_allowed(vigil: Vigil):
    done = vigil.run("mcp", "serve", "--allow", "everything")
    assert done.returncode == 2
    assert "--allow" in done.stderr


def test_where_stdin_ends_it_ends(vigil: Vigil):
    done = vigil.run("mcp", "serve")
    assert (done.returncode, done.stdout) == (0, "")


def test_what_an_app_prints_does_not_stand_where_the_protocol_does(vigil: Vigil):
    (vigil.folder / "loud.py").write_text(LOUD)
    done = vigil.run("mcp", "serve", "--app", "loud:app")
    assert (done.returncode, done.stdout) == (0, "")
    assert "I am here" in done.stderr


def test_it_says_which_extra_it_needs(tmp_path):
    done = run_without_extras(
        """
        from vigil.__main__ import main
        sys.argv[1:] = ["mcp", "serve"]
        main()
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (1, "")
    needs = "vigil: `vigil mcp serve` needs the package mcp; pip install 'vigil-engine[mcp]'\n"
    assert done.stderr == needs
