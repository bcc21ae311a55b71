"""`vigil users`, `tokens` and `login`: who there is, and who gives the orders that are typed."""

from __future__ import annotations

import json
import stat

import pytest

from tests.docs.facts import commands
from tests.vigil.program import Vigil
from tests.vigil.test_command_line import one_line
from vigil.commands.rights import NEEDED

PASSWORD = b"correct horse battery\n"
READS = {
    "demo", "up", "node", "project", "inbox", "decisions", "costs", "uncompress", "sql", "check",
    "lab", "doctor", "login", "logout", "whoami", "events why", "events would", "actors list",
    "actors show", "actors why", "actors history", "actors definition", "orders list",
    "episodes list", "episodes show", "episodes steps", "episodes result", "episodes prompt",
    "episodes log", "episodes tail", "episodes replay", "episodes diff", "findings list",
    "findings show", "findings chain", "outputs list", "outputs show", "workflows list",
    "workflows show", "workflows definitions", "workflows history", "workflows definition",
    "dead list", "dead show", "mcp pins", "mcp serve", "console", "users list", "users show",
    "tokens list", "projections status", "projections run", "archive list", "archive verify",
    "archive cat", "backup verify", "export", "retention show", "retention hold list",
}  # fmt: skip
"""Commands that order nothing of the people of a stack, or run what is a process of its own."""


@pytest.fixture
def vigil(standing: Vigil, tmp_path) -> Vigil:
    """The command of somebody with logins of their own, on a stack that is there."""
    standing.environ["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    standing.environ["LOGNAME"] = "root"
    standing.environ.pop("VIGIL_LOGIN", None)
    return standing


def done(vigil: Vigil, *words: str, stdin: bytes = b"", **settings: str) -> str:
    ran = vigil.run(*words, stdin=stdin, **settings)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def refused(vigil: Vigil, *words: str, code: int = 1, stdin: bytes = b"", **settings: str) -> str:
    ran = vigil.run(*words, stdin=stdin, **settings)
    assert (ran.returncode, ran.stdout) == (code, "")
    return one_line(ran, code=code).strip()


def add(vigil: Vigil, name: str, role: str, *more: str) -> None:
    done(vigil, "users", "add", name, "--role", role, "--password-stdin", *more, stdin=PASSWORD)


def test_every_command_is_an_order_with_a_role_or_is_known_to_read():
    typed = {name.partition(" ")[2] for name, _ in commands()}
    assert typed - READS == NEEDED.keys()
    asked = {
        name.partition(" ")[2]
        for name, command in commands()
        if any("--by" in each.opts for each in command.params)
    }
    # `--by` of `costs` and their export is no person, and an MCP server asks those who use it.
    assert asked - {"costs", "export", "mcp serve"} <= NEEDED.keys()


def test_people_are_added_shown_changed_and_removed(vigil):
    add(vigil, "ann", "admin", "--group", "oncall")
    assert done(vigil, "users", "add", "bob", "--no-password") == "bob: viewer, without a password"
    assert done(vigil, "users", "role", "bob", "approver") == "bob: approver"
    assert done(vigil, "users", "role", "bob", "approver") == "bob: approver, as before"
    assert done(vigil, "users", "groups", "bob", "dba", "oncall") == "bob: dba, oncall"
    done(vigil, "users", "password", "bob", "--password-stdin", stdin=b"another password\n")
    ann, bob = vigil.ask("users", "list")
    assert (ann["name"], ann["role"], ann["groups"]) == ("ann", "admin", ["oncall"])
    assert (bob["groups"], bob["has_password"]) == (["dba", "oncall"], True)
    assert "ann" in done(vigil, "users", "list")
    assert done(vigil, "users", "remove", "bob", "--yes").startswith("bob: removed")
    assert [each["name"] for each in vigil.ask("users", "list")] == ["ann"]
    assert "is the last admin" in refused(vigil, "users", "remove", "ann", "--yes")
    assert "nobody is called 'bob'" in refused(vigil, "users", "role", "bob", "admin")


def test_a_password_is_never_an_argument_and_is_not_asked_for_without_a_terminal(vigil):
    says = refused(vigil, "users", "add", "ann", code=2)
    assert "there is no terminal to type it on; give --password-stdin" in says
    says = refused(vigil, "users", "add", "ann", "--password-stdin", code=2)
    assert "there is none on standard input" in says
    says = refused(vigil, "users", "add", "ann", "--password-stdin", code=2, stdin=b"short\n")
    assert "it has 5 characters" in says


def test_where_nobody_has_to_sign_in_names_are_believed_as_typed(vigil):
    done(vigil, "actors", "pause", "watcher", "--by", "eve")
    add(vigil, "ann", "admin")
    assert done(vigil, "whoami") == "nobody has signed in here; this stack asks nobody"


def test_where_people_have_to_sign_in_an_order_is_the_logins(vigil, tmp_path):
    add(vigil, "ann", "admin")
    assert done(vigil, "users", "require-login", "on") == "people have to sign in"
    pause = ("actors", "pause", "watcher")
    assert refused(vigil, *pause) == (
        "vigil: this stack wants to know who orders something; run `vigil login`"
    )
    assert refused(vigil, "publish", "a.b", "{}").endswith("run `vigil login`")
    says = refused(vigil, "login", "ann", "--password-stdin", stdin=b"wrong password\n")
    assert "do not go together" in says
    says = done(vigil, "login", "ann", "--password-stdin", stdin=PASSWORD)
    assert says.startswith(
        f"signed in to stack {vigil.environ['VIGIL_STACK']} as ann: admin, until"
    )
    file = tmp_path / "config" / "vigil" / "logins.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert done(vigil, "whoami") == "ann: admin; this stack wants people to sign in"
    done(vigil, *pause)
    done(vigil, "publish", "a.b", "{}")
    assert "you are signed in as 'ann'" in refused(vigil, *pause, "--by", "eve", code=2)
    (paused,) = vigil.ask("mode")["paused"]
    assert paused["paused_by"] == "ann"
    assert done(vigil, "logout") == "signed out"
    assert refused(vigil, *pause).endswith("run `vigil login`")
    assert done(vigil, "whoami").startswith("nobody has signed in here; this stack wants")


def test_a_login_is_over_when_its_session_is(vigil):
    add(vigil, "ann", "admin")
    add(vigil, "bob", "operator")
    done(vigil, "login", "bob", "--password-stdin", stdin=PASSWORD)
    done(vigil, "users", "require-login", "on")
    done(vigil, "actors", "pause", "watcher")
    says = refused(vigil, "users", "add", "eve", "--no-password")
    assert says == "vigil: this takes the role admin, and 'bob' is operator"
    done(vigil, "login", "ann", "--password-stdin", stdin=PASSWORD)
    done(vigil, "users", "sign-out", "ann")
    assert "your login is over; run `vigil login`" in refused(vigil, "actors", "resume", "watcher")


def test_a_program_orders_with_a_token_within_its_scopes_and_decides_nothing(vigil):
    add(vigil, "ann", "admin")
    token = done(vigil, "tokens", "issue", "ci", "--role", "operator")
    scoped = vigil.ask("tokens", "issue", "feed", "--role", "operator", "--scope", "read")
    done(vigil, "users", "require-login", "on")
    pause = ("actors", "pause", "watcher")
    done(vigil, *pause, VIGIL_LOGIN=token)
    (paused,) = vigil.ask("mode")["paused"]
    assert paused["paused_by"] == "token:ci"
    says = refused(vigil, *pause, VIGIL_LOGIN=scoped["secret"])
    assert "this takes the role operator, and 'token:feed' is operator, for read alone" in says
    approve = ("episodes", "approve", "0" * 8, "--yes")
    assert "programs decide on no approvals" in refused(vigil, *approve, VIGIL_LOGIN=token)
    says = done(vigil, "login", "--secret-stdin", stdin=token.encode())
    assert says.endswith("as token:ci: operator")
    done(vigil, "actors", "resume", "watcher")


def test_what_an_agent_types_says_whether_it_is_a_dry_run(vigil):
    add(vigil, "ann", "admin")
    token = done(vigil, "tokens", "issue", "agent", "--role", "operator", "--agent")
    done(vigil, "users", "require-login", "on")
    publish = ("publish", "a.b", "{}")
    assert refused(vigil, *publish, code=2, VIGIL_LOGIN=token) == (
        "vigil: 'token:agent' is an agent's: say whether this is a dry run; add --dry-run, or "
        "--no-dry-run if it is to change something"
    )
    assert "published" not in done(vigil, *publish, "--dry-run", VIGIL_LOGIN=token)
    assert "published" in done(vigil, *publish, "--no-dry-run", VIGIL_LOGIN=token)
    done(vigil, "actors", "pause", "watcher", VIGIL_LOGIN=token)


def test_tokens_are_listed_without_their_text_and_revoked(vigil):
    token = vigil.ask("tokens", "issue", "ci", "--expires-in", "30d", "--reason", "deploys")
    with vigil.running("project", "--log", "json"):
        (row,) = vigil.wait_for("tokens", "list", until=bool)
        assert token["secret"] not in json.dumps(row)
        assert (row["name"], row["issued_reason"]) == ("ci", "deploys")
        id_ = row["token_id"]
        assert done(vigil, "tokens", "revoke", id_) == f"{id_}: revoked"
        assert done(vigil, "tokens", "revoke", id_) == f"{id_}: was revoked before"
        vigil.wait_for("tokens", "list", until=lambda rows: rows == [])
        (shown,) = vigil.ask("tokens", "list", "--all")
        assert shown["revoked_at"]


def test_logins_that_others_may_read_are_refused(vigil, tmp_path):
    add(vigil, "ann", "admin")
    done(vigil, "login", "ann", "--password-stdin", stdin=PASSWORD)
    file = tmp_path / "config" / "vigil" / "logins.json"
    file.chmod(0o644)
    assert f"others may read your logins; run `chmod 600 {file}`" in refused(vigil, "whoami")
    file.chmod(0o600)
    file.write_text("[")
    assert "no logins" in refused(vigil, "whoami")
