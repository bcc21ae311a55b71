"""What mypy and pyright, both in strict mode, say about calls with and without mistakes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
FIT, DO_NOT_FIT = FOLDER / "calls_that_fit.py", FOLDER / "calls_that_do_not_fit.py"
pytestmark = pytest.mark.timeout(300)  # Where mypy has no cache, it reads all of the engine.

EXAMPLES = [str(FIT), str(DO_NOT_FIT)]

Said: TypeAlias = dict[str, list[str]]
"""`file.py:12` → what is reported there."""


def mypy(folder: Path) -> Said:
    """Run it with our own settings, which are strict: `make check` has left a cache of the rest."""
    del folder
    said = run("mypy", "--hide-error-context", "--no-pretty", *EXAMPLES)
    return grouped(re.findall(r"(\w+\.py:\d+): error: (.*)", said))


def pyright(folder: Path) -> Said:
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps({"typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}))
    options = ["--outputjson", "--pythonpath", sys.executable, "--project", str(config)]
    said = run("pyright", *options, *EXAMPLES)
    return grouped(
        (f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}", each["message"])
        for each in json.loads(said)["generalDiagnostics"]
        if each["severity"] == "error"
    )


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, 1}, done.stderr or done.stdout  # 1: it has found something.
    return done.stdout


def grouped(found) -> Said:
    said: Said = {}
    for place, message in found:
        said.setdefault(place, []).append(message)
    return said


@pytest.fixture(scope="module", params=[mypy, pyright])
def said(request, tmp_path_factory) -> Said:
    checker: Callable[[Path], Said] = request.param
    return checker(tmp_path_factory.mktemp("checker"))


def wrong() -> list[str]:
    lines = enumerate(DO_NOT_FIT.read_text().splitlines(), start=1)
    return [f"{DO_NOT_FIT.name}:{number}" for number, line in lines if "# wrong: " in line]


def test_calls_that_fit_have_the_types_of_their_results_and_nothing_is_reported(said):
    assert {place: found for place, found in said.items() if place.startswith(FIT.name)} == {}


def test_each_mistake_is_reported_at_its_line_and_nothing_else(said):
    assert wrong()
    assert [place for place in said if place.startswith(DO_NOT_FIT.name)] == wrong()
