"""`vigil up` and `vigil demo`: servers of one's own, and nothing left of them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import psutil
import pytest

from projections.embedded import EmbeddedPostgres
from projections.postgres.migrator import migrate
from projections.postgres.pool import connect
from projections.postgres.queries import Migration, migrations
from tests.mistakes.test_servers import SECOND_UP
from tests.vigil.program import STOP_S_MAX, Vigil
from tests.vigil.test_command_line import one_line

READY = "actors "


def family(program) -> list[psutil.Process]:
    parent = psutil.Process(program.process.pid)
    return [parent, *parent.children(recursive=True)]


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert [process.name() for process in alive] == []


def test_other_terminals_in_the_folder_find_what_up_runs(vigil, write_app):
    write_app()
    with vigil.running("up", "--app", "watch:app", "--stack", "mine") as up:
        said = up.wait_said("node up")
        assert "nats://127.0.0.1:" in said
        assert "postgresql://" in said
        processes = family(up)

        assert vigil.run("publish", "host.seen", '{"host": "a"}').returncode == 0
        vigil.wait_for("findings", "list", until=lambda rows: len(rows) == 1)
        again = vigil.run("up", "--app", "watch:app")
        assert (again.returncode, again.stderr) == (1, f"vigil: {SECOND_UP.said}\n")

        assert up.stop(signal.SIGTERM) == 0
    assert not (vigil.folder / ".vigil" / "run.toml").exists()
    assert_gone(processes)


@pytest.mark.nightly
def test_other_terminals_find_what_up_keeps_elsewhere(vigil, write_app, tmp_path):
    write_app()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with vigil.running("up", "--app", "watch:app", "--dir", str(tmp_path / "kept")) as up:
        up.wait_said("node up")
        assert vigil.ask("findings", "list") == []

        # The app lies in a folder that only the path of a program that begins anew can name.
        path = f"{tmp_path}:{vigil.environ['PYTHONPATH']}"
        from_elsewhere = Vigil(elsewhere, is_cold=True, PYTHONPATH=path)
        for done in (
            from_elsewhere.run("up", "--app", "watch:app", "--dir", str(tmp_path / "kept")),
            vigil.run("up", "--app", "watch:app", "--dir", "another"),
        ):
            assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
            assert "another `vigil up` or `vigil demo` runs in" in done.stderr

        assert up.stop(signal.SIGINT) == 0
    assert not (vigil.folder / ".vigil" / "run.toml").exists()


@pytest.mark.parametrize(
    ("command", "kept", "name"),
    [
        (("up", "--app", "watch:app"), ".vigil", "0001_other.sql"),
        (("demo", "--seconds", "1"), ".vigil/demo", migrations()[0].name),
    ],
    ids=["up-unknown", "demo-changed"],
)
async def test_tables_of_another_version_are_named_with_the_folder_to_delete(
    vigil, write_app, command, kept, name
):
    write_app()
    folder = vigil.folder / kept / "postgres"
    with EmbeddedPostgres(folder) as server:
        async with await connect(server.dsn) as pool:
            await migrate(pool, wanted=[Migration(name=name, text="SELECT 1")])

    done = vigil.run(*command)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert name in done.stderr
    assert f"delete {kept}/postgres" in done.stderr


@pytest.mark.skipif(not psutil.LINUX, reason="only Linux ends children with their parent")
def test_a_killed_up_leaves_no_server_and_can_start_again(vigil, write_app):
    write_app()
    with vigil.running("up", "--app", "watch:app") as up:
        up.wait_said("node up")
        processes = family(up)
        up.stop(signal.SIGKILL)
        assert_gone(processes)
    with vigil.running("up", "--app", "watch:app") as up:
        up.wait_said("node up")
        assert up.stop(signal.SIGINT) == 0


def test_the_demo_shows_what_it_found_and_leaves_nothing_running(vigil):
    with vigil.running("demo", "--seconds", "30") as demo:
        demo.wait_said(" done ")
        processes = family(demo)
        assert len(processes) > 3
        assert demo.stop(signal.SIGINT) == 0
        said = demo.said
    assert_gone(processes)
    assert "It ends 30 s after its start; Ctrl-C ends it at once." in said
    assert "FROM vigil.active_findings" in said
    assert "directories.largest" in said
    assert "date_trunc('minute'" in said


ENDED = "Requests on the journal: 6"
STAYS = "Its story has ended; the servers stay up."


def wait_each(demo, *words: str) -> str:
    """Wait until a demo has said each of `words`, one after the other; return all that it said."""
    for each in words:
        said = demo.wait_said(each)
    return said


BEGUN = ("Waits for the nodes", " s  event ", " has it")


# People approve in the next test, which asks the same of a demo that is begun again.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_agent_of_the_demo_goes_on_on_another_node_and_its_model_is_asked_nothing_twice(vigil):
    with vigil.running("demo", "--agent", "--yes", "--seconds", "60") as demo:
        wait_each(demo, *BEGUN, " announced, and begins")
        processes = family(demo)
        assert len(processes) > 4
        said = wait_each(demo, " brings checkout.log.gz has ", ENDED, STAYS)
        assert demo.process.wait(STOP_S_MAX) == 0, said
    assert_gone(processes)
    happened = re.findall(r"node +(\w+) has it|(kill) -9|(compress.call) brings", said)
    nodes = [words[0] for words in happened]
    assert [kind or "node" for _, *kinds in happened for kind in ["".join(kinds)]] == [
        "node", "node", "kill", "node", "compress.call"
    ]  # fmt: skip
    assert {nodes[1], nodes[3]} == {"first", "second"}
    assert f"{ENDED}; the model has answered 6." in said
    assert re.search(r"Cost of all runs in this folder: 0\.\d+ USD", said)
    assert "finding  folder:shop: logs/checkout.log fills the folder" in said


@pytest.mark.timeout(600)
def test_people_approve_what_the_demo_shows_and_it_goes_on_where_it_was_left(vigil):
    with vigil.running("demo", "--agent") as demo:
        wait_each(demo, *BEGUN, "vigil episodes approve ")
        processes = family(demo)
        assert demo.stop(signal.SIGINT) == 0
        assert "It has not ended. Run `vigil demo --agent` again" in demo.said
    assert_gone(processes)

    with vigil.running("demo", "--agent") as demo:
        said = wait_each(
            demo, "Console   http", "Ctrl-C ends it.", *BEGUN, "vigil episodes approve "
        )
        assert said.index("Console   http") < said.index("Ctrl-C ends it.") < said.index(BEGUN[0])
        words = re.findall(r"vigil (episodes approve .*)", said)[0].split()
        done = vigil.run(*words)
        assert done.returncode == 0, done.stderr
        wait_each(demo, f"{ENDED}; the model has answered 1.", STAYS)
        assert [each["status"] for each in vigil.ask("episodes", "list")] == ["done"]
        assert demo.stop(signal.SIGINT) == 0


@pytest.mark.timeout(600)
def test_a_demo_with_an_agent_ends_after_its_seconds_though_its_story_has_not(vigil):
    done = vigil.run("demo", "--agent", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    assert "It ends 1 s after its start; Ctrl-C ends it at once." in done.stdout
    assert "It has not ended. Run `vigil demo --agent` again" in done.stdout


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_demo_whose_agent_fails_says_why(vigil):
    unknown = ("demo", "--agent", "--model", "openai:nobody-knows")
    with vigil.running(*unknown, OPENAI_API_KEY="none") as demo:
        told = "vigil: it has failed: unpriced_model: nobody knows the price of"
        wait_each(demo, *BEGUN, "failed unpriced_model", told)
        assert demo.process.wait(STOP_S_MAX) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--yes",), "--model and --yes go with --agent"),
        (("--agent", "--model", "nobody:x"), "--model nobody:x: Unknown model: nobody:x"),
    ],
)
def test_a_demo_that_cannot_be_is_a_mistake(vigil, words, told):
    assert told in one_line(vigil.run("demo", *words), code=2)


@pytest.mark.parametrize("flags", [[], ["--agent"]])
def test_the_demo_says_what_to_install(tmp_path, flags):
    hides = "import importlib.util as u; u.find_spec = lambda name: None"
    words = ["vigil", "demo", *flags]
    run = f"import sys; sys.argv = {words}; from vigil.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", f"{hides}\n{run}"],
        cwd=tmp_path, env=Vigil(tmp_path).environ, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert f"pip install 'vigil-engine[demo{',agents' if flags else ''}]'" in done.stderr
