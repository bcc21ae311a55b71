"""What a command loads before it works, and what is in its way."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vigil.program import ROOT, Vigil
from vigil.commands import ENTRIES, whole

LOADED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=open("loaded", "w")))
sys.argv[1:] = json.loads(sys.argv[1])
from vigil.__main__ import main
main()
"""

READS = [
    ("findings", "list"),
    ("findings", "show", "k"),
    ("findings", "chain", "k"),
    ("episodes", "list"),
    ("episodes", "show", "00000000-0000-0000-0000-000000000000"),
    ("episodes", "steps", "00000000-0000-0000-0000-000000000000"),
    ("outputs", "list"),
    ("outputs", "show", "k"),
    ("workflows", "list"),
    ("dead", "list"),
    ("dead", "show", "k"),
    ("inbox",),
    ("decisions",),
    ("sql", "select 1"),
    ("publish", "a.b", "{}", "--create-stack"),
]


def loaded_by(vigil: Vigil, *words: str) -> set[str]:
    command = [sys.executable, "-c", LOADED, json.dumps(words)]
    subprocess.run(
        command, cwd=vigil.folder, env=vigil.environ, check=False, capture_output=True, timeout=30
    )
    return set(json.loads((vigil.folder / "loaded").read_text()))


BY_DAY = {"findings list", "episodes show", "outputs list", "workflows list", "dead list", "inbox",
          "sql select", "publish a.b"}  # fmt: skip
"""One of each group of commands: the others of a group import nearly the same."""


def by_day(words):
    return () if " ".join(words[:2]) in BY_DAY or len(words) == 1 else pytest.mark.nightly


@pytest.mark.parametrize(
    "words", [pytest.param(words, marks=by_day(words)) for words in READS], ids=" ".join
)
def test_a_command_that_reads_rows_or_publishes_loads_no_engine(connected, words):
    loaded = loaded_by(connected, *words)

    assert [name for name in loaded if name.partition(".")[0] == "engine"] == []
    assert {"structlog", "pydantic_settings", "uvloop"} & loaded == set()
    assert ("streams.jetstream.setup.ports" in loaded) == (words[0] == "publish")


def test_help_loads_no_command(vigil):
    loaded = loaded_by(vigil, "--help")

    assert [name for name in loaded if name.startswith("vigil.commands.")] == []
    assert {"asyncio", "rich", "pydantic", "streams.model.events"} & loaded == set()


def test_the_help_of_all_commands_is_the_first_sentence_of_each():
    named = {each.name or each.callback.__name__: each for each in whole().registered_commands}

    for name, entry in ENTRIES.items():
        if not entry.is_group:
            help_ = " ".join(inspect.cleandoc(named[name].callback.__doc__).split())
            assert help_.startswith(entry.help), name


EACH = [
    pytest.param(name, makes, marks=() if name_no == makes_no else pytest.mark.nightly)
    for name_no, name in enumerate(["engine", "streams", "projections"])
    for makes_no, makes in enumerate(["package", "module", "folder"])
]
"""Each of our packages, and each way to hide it; by day every one is in one pair."""


@pytest.mark.parametrize(("name", "makes"), EACH)
def test_an_app_beside_a_package_of_the_same_name_is_one_line(tmp_path, name, makes):
    """`vigil` itself is found first here, so that only the app's folder hides something."""
    write(tmp_path, name, makes)
    (tmp_path / "watch.py").write_text("from vigil import App\napp = App()\n")

    done = run(tmp_path, "-c", "from vigil.__main__ import main; main()", "node", "--app=watch:app",
               PYTHONSAFEPATH="1")  # fmt: skip

    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"hides Vigil's own package {name!r}: rename it" in done.stderr


@pytest.mark.parametrize(
    ("name", "makes"), [("engine", "package"), ("streams", "module"), ("projections", "package")]
)
def test_a_package_that_hides_ours_is_one_line(tmp_path, name, makes):
    write(tmp_path, name, makes)

    done = run(tmp_path, "-m", "vigil", "findings", "list")

    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"{tmp_path / name}" in done.stderr
    assert f"hides Vigil's own package {name!r}: rename it" in done.stderr


@pytest.mark.parametrize("name", ["engine", "streams", "projections"])
def test_a_program_that_imports_a_public_name_is_told_what_hides_it(tmp_path, name):
    write(tmp_path, name, "package")

    done = run(tmp_path, "-c", f"import {name}\nfrom vigil import Actor")

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {tmp_path / name} hides Vigil's own package {name!r}")


def test_a_folder_without_python_hides_nothing(tmp_path):
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "parts.txt").touch()

    assert run(tmp_path, "-c", "from vigil import Actor").returncode == 0
    assert run(tmp_path, "-m", "vigil", "--version").returncode == 0


def write(folder: Path, name: str, makes: str) -> None:
    match makes:
        case "module":
            (folder / f"{name}.py").write_text("helper = 1\n")
        case _:
            (folder / name).mkdir()
            file = "__init__.py" if makes == "package" else "helper.py"
            (folder / name / file).write_text("helper = 1\n")


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Python in `folder`, which goes before our packages unless that is switched off."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**Vigil(folder).environ, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
