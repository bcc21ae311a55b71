"""Mistakes in what a command is told to load: each is one line, which says what there is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mistakes.mine import id_of
from tests.mistakes.mistake import Mistake
from vigil import errors
from vigil.commands import run
from vigil.serving import app

APP = "from vigil import App\napp = App()\n"

FILES = {  # what lies in the folder
    "watch.py": APP,
    "fac.py": f"{APP}def make(): return app\nlimit = 1\n",
    "syn.py": "x = 1\ny = ((1\n",
    "needy.py": "import requestz\n",
    "env.py": "import os\n\nos.environ['PAGER_TOKEN']\n",
}

MISTAKES: list[Mistake] = [
    Mistake(
        1,
        "a name that the file has not",
        "watch:ap",
        "vigil: watch:ap: there is no 'ap' in watch, which is",
        "command",
    ),
    Mistake(1, "a name that the file has not", "watch:ap", "watch.py; its app is app", "command"),
    Mistake(
        2,
        "a module that there is not",
        "wacth:app",
        "or on Python's path; did you mean watch?",
        "command",
    ),
    Mistake(
        3,
        "a module alone",
        "watch",
        "watch: write module:attribute, such as watch:app",
        "command",
    ),
    Mistake(
        3,
        "a file",
        "watch.py",
        "watch.py: write module:attribute, such as watch:app",
        "command",
    ),
    Mistake(
        4,
        "a function instead of an app",
        "fac:make",
        "fac.py is of the type 'function', not an App; its app is app",
        "command",
    ),
    Mistake(
        4,
        "a number instead of an app",
        "fac:limit",
        "fac.py is of the type 'int', not an App; its app is app",
        "command",
    ),
    Mistake(
        5, "a syntax error", "syn:app", "syn.py:2: SyntaxError: '(' was never closed", "command"
    ),
    Mistake(
        6,
        "an import of a module that is not there",
        "needy:app",
        "it imports 'requestz', which is not installed",
        "command",
    ),
    Mistake(
        7,
        "a variable that is not set, as the file is imported",
        "env:app",
        "env.py:3: KeyError: 'PAGER_TOKEN'",
        "command",
    ),
    Mistake(
        8,
        "a folder that is called as a package of ours",
        "engine",
        "hides Vigil's own package 'engine': rename it, such as to my_engine, move it into a"
        " package of your own, or run from a folder that has nothing of that name",
        "command",
    ),
    Mistake(
        8,
        "a folder that is called as a package of ours, without a command",
        "streams",
        "hides Vigil's own package 'streams': rename it, such as to my_streams, move it into a"
        " package of your own, or run from a folder that has nothing of that name",
        "python",
    ),
    Mistake(
        9,
        "a file that is called as we are",
        "vigil.py",
        "vigil.py hides Vigil's own package 'vigil': rename it, such as to my_vigil",
        "command",
    ),
]

NAMED = [each for each in MISTAKES if each.number <= 7]

(FOLDER, IMPORTED, FILE) = [each for each in MISTAKES if each.number > 7]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Go to a folder with apps of a user."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in FILES:
        monkeypatch.setitem(sys.modules, name.removesuffix(".py"), sys)
        del sys.modules[name.removesuffix(".py")]
    return tmp_path


def told(capsys, *typed: str) -> str:
    """Return the one line that a command ends with that cannot work."""
    with pytest.raises(SystemExit) as ended:
        run(typed)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return str(line)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("mistake", NAMED, ids=id_of)
def test_what_cannot_be_loaded_is_told_with_what_there_is(capsys, mistake):
    assert mistake.said in told(capsys, "check", mistake.done)


def test_a_folder_that_hides_a_package_of_ours_is_told(capsys, folder):
    (folder / FOLDER.done).mkdir()
    (folder / FOLDER.done / "__init__.py").touch()
    assert FOLDER.said in told(capsys, "check", "watch:app")


def test_a_folder_that_hides_a_package_of_ours_is_told_without_a_command(folder):
    (folder / IMPORTED.done).mkdir()
    (folder / IMPORTED.done / "__init__.py").touch()
    program = [sys.executable, "watch.py"]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)
    assert IMPORTED.said in done.stderr.splitlines()[-1]


def test_a_file_of_ones_own_that_is_called_as_we_are_is_told(folder):
    (folder / FILE.done).write_text(APP)
    with pytest.raises(errors.Mistake) as caught:
        app.load("vigil:app")
    assert FILE.said in str(caught.value)
