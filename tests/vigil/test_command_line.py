"""What the command says to words that cannot work, and to servers that are not there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from streams.model.events import EndStatus
from streams.model.findings import FindingStatus, Severity
from tests.mistakes import test_servers as around
from tests.vigil.program import NOWHERE, Vigil
from vigil.commands.episodes.show import EpisodeStatus
from vigil.commands.findings import WantedStatus
from vigil.flags import in_front
from vigil.printing import tables


@pytest.fixture
def typed(tmp_path):
    """The command as it is typed, imports and all."""
    return Vigil(tmp_path, is_cold=True)


def one_line(done, *, code: int) -> str:
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_help_names_every_command(typed):
    done = typed.run("--help")

    assert done.returncode == 0
    for command in ("demo", "up", "node", "publish", "episodes", "findings", "outputs", "inbox"):
        assert command in done.stdout


def test_help_loads_nothing_heavy(typed):
    typed.command[1:1] = ["-X", "importtime"]

    loaded = typed.run("--help").stderr

    for heavy in ("asyncpg", "nats.aio", "pydantic", "opentelemetry", "structlog", "engine"):
        assert f"| {heavy}\n" not in loaded.replace("|   ", "| ").replace("  ", "")


def test_a_misspelt_variable_is_told(vigil):
    done = vigil.run("findings", "list", "--help", VIGIL_NDOE="n1")

    told = "vigil: warning: VIGIL_NDOE is no setting, and is ignored; did you mean VIGIL_NODE?"
    assert (done.returncode, told in done.stderr) == (0, True)


def test_it_says_its_version(typed):
    assert typed.run("--version").stdout.startswith("vigil ")


def test_flags_for_all_commands_may_stand_anywhere():
    typed = ["publish", "--stack=a", "x", "--nats-url", "nats://h", "{}", "--debug", "--", "--env"]

    assert in_front(typed) == [
        *("--stack=a", "--nats-url", "nats://h", "--debug"),
        *("publish", "x", "{}", "--", "--env"),
    ]


def test_what_is_nested_too_deep_is_not_published(vigil):
    payload = '{"a": %s}' % ("[" * 100 + "]" * 100)
    assert "nested deeper" in one_line(vigil.run("publish", "x", payload, **NOWHERE), code=2)


def test_a_group_by_itself_shows_what_there_is_in_it(vigil):
    done = vigil.run("episodes")

    assert (done.returncode, done.stderr) == (2, "")
    assert "cancel" in done.stdout


def test_without_nats_a_command_ends_with_one_line(vigil, write_app):
    """At the same time, as each waits for a server as long as it may."""
    write_app()
    commands = [("node", "--app", "watch:app", "--no-project"), ("publish", "x", "{}")]

    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda command: vigil.run(*command, **NOWHERE), commands))

    for each in done:
        said = one_line(each, code=1)
        assert "127.0.0.1:1" in said
        assert "`vigil up` brings servers of its own, `vigil doctor` shows" in said


@pytest.mark.parametrize(
    "command",
    [
        ("project",),
        ("node", "--app", "watch:app"),
        ("episodes", "list"),
        ("findings", "show", "x"),
        ("sql", "select 1"),
    ],
)
def test_without_postgres_a_command_ends_with_one_line(connected, write_app, command):
    write_app()
    dsn = NOWHERE["VIGIL_POSTGRES_DSN"]

    done = connected.run(*command, VIGIL_POSTGRES_DSN=dsn)

    said = one_line(done, code=1)
    assert "127.0.0.1:1" in said
    assert around.NO_POSTGRES.said in said


@pytest.mark.parametrize("mistake", around.DSNS, ids=lambda each: each.made)
def test_a_wrong_dsn_is_one_line(connected, postgres, mistake):
    server = postgres.dsn.rpartition("/")[0]
    dsn = {
        "/nodb": f"{server}/nodb",
        "nobody@": f"{postgres.dsn.replace('//postgres@', '//nobody@')}",
    }.get(mistake.done, mistake.done)
    done = connected.run("findings", "list", VIGIL_POSTGRES_DSN=dsn)
    assert mistake.said in one_line(done, code=1)


@pytest.mark.parametrize("url", ["nats://127.0.0.1:abc", "nats://127.0.0.1:99999"])
def test_a_server_without_an_address_ends_with_one_line(vigil, url):
    assert "VIGIL_NATS_URL: " in one_line(
        vigil.run("publish", "x", "{}", VIGIL_NATS_URL=url), code=2
    )


def test_a_statement_that_cannot_be_asked_is_a_mistake_in_one_line(standing):
    with standing.running("project"):
        standing.wait_for("episodes", "list", until=lambda _: True)
    nothing = standing.run("sql", "")
    two = standing.run("sql", "select 1; select 2")
    typo = standing.run("sql", "select statu from episodes")
    assert one_line(nothing, code=2) == "vigil: an empty statement\n"
    assert one_line(two, code=2) == "vigil: one statement at a time\n"
    assert around.NO_COLUMN.said in one_line(typo, code=2)
    for each in around.UNKNOWN_KEYS:
        assert each.said in one_line(standing.run(*each.done.split()), code=1)


def test_more_rows_than_are_ever_read_cannot_be_asked_for(vigil):
    done = vigil.run("episodes", "list", "--limit", "10001")

    assert done.returncode == 2
    assert "10,001 is more than 10,000" in done.stderr


def test_every_word_of_the_events_can_be_asked_for_and_has_a_colour():
    assert {*EndStatus} <= {*EpisodeStatus}
    assert {*FindingStatus} <= {*WantedStatus}
    assert {*EndStatus, *FindingStatus} <= tables.STATUS_STYLES.keys()
    assert {*Severity} == tables.SEVERITY_STYLES.keys()


def test_debug_shows_the_traceback(vigil):
    assert "Traceback" in vigil.run("publish", "x", "{", "--debug").stderr
    assert "Traceback" in vigil.run("publish", "x", "{", VIGIL_DEBUG="1").stderr


def test_an_exporter_that_is_not_installed_is_named_with_its_remedy(vigil):
    said = one_line(vigil.run("project", OTEL_TRACES_EXPORTER="nowhere"), code=2)

    assert "'nowhere'" in said
    assert "install" in said
