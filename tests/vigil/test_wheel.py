"""The wheel by itself: outside the repository, in an environment that has nothing else of ours."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.vigil.program import ROOT, Vigil

WATCH = re.search(r"```python\n(# watch\.py\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from the sources as they are."""
    hatchling = pytest.importorskip("hatchling.build")
    folder, before = tmp_path_factory.mktemp("wheel"), Path.cwd()
    os.chdir(ROOT)
    try:
        return folder / hatchling.build_wheel(str(folder))
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> list[str]:
    """The program of an environment that has the wheel, and sees what we depend on."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # Behind what the wheel has, without the finders of an editable installation.
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"].replace("\\", "/"))
    return [str(folder / "bin" / "python"), "-c", "from vigil.__main__ import main; main()"]


@pytest.fixture
def vigil(installed, tmp_path) -> Vigil:
    program = Vigil(tmp_path, is_cold=True)
    program.command = installed
    del program.environ["PYTHONPATH"]
    scripts = sysconfig.get_path("scripts")  # The wheel of nats-server has its program there.
    program.environ["PATH"] = f"{scripts}{os.pathsep}{program.environ['PATH']}"
    return program


def test_it_has_what_an_index_shows(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        about = Parser().parsestr(archive.read(name).decode())

    assert about.get_payload().startswith("# Vigil")
    assert about["Description-Content-Type"] == "text/markdown"
    assert "demo" in about.get_all("Provides-Extra")


def test_type_checkers_read_its_types(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    packages = sorted(each for each in names if each.count("/") == 1 and "__init__" in each)
    assert [each for each in packages if f"{Path(each).parent}/py.typed" not in names] == []


def test_it_is_not_the_sources_that_are_tested(vigil):
    program = [
        vigil.command[0],
        "-c",
        "import vigil, engine; print(vigil.__file__, engine.__file__)",
    ]
    where = subprocess.check_output(program, cwd=vigil.folder, env=vigil.environ, text=True)

    assert str(ROOT) not in where


@pytest.mark.nightly
def test_the_demo_runs_and_ends_by_itself(vigil):
    done = vigil.run("demo", "--seconds", "3")

    assert done.returncode == 0, done.stderr
    assert "NATS      nats://" in done.stdout
    assert "active findings" in done.stdout


def test_the_actor_of_the_readme_runs(vigil):
    assert WATCH is not None
    (vigil.folder / "watch.py").write_text(WATCH[1])
    with vigil.running("up", "--app", "watch:app") as program:
        program.wait_said("node up")
        done = vigil.run("publish", "resource.updated", '{"host": "h1", "disk_used": 0.97}')
        assert done.returncode == 0, done.stderr
        found = vigil.wait_for("findings", "list", until=lambda rows: rows)

    assert found[0]["finding_key"] == "host:disk:h1"
