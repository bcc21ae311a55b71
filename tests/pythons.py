"""Tries every Python that the metadata names and that is on this machine: `make pythons`.

Each has an environment of its own, `.venv-3.12` and so on, at the locked versions, and runs the
tests of what depends on Python most: code of users, the kit, the commands' messages, the wheel.
`PATHS` names others; what is not found is said.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

NAMED: Final = re.compile(r'"Programming Language :: Python :: (3\.\d+)"')

PATHS: Final = (
    "tests/engine/app",
    "tests/engine/functions",
    "tests/engine/usercode",
    "tests/testing",
    "tests/client",
    "tests/vigil/test_checking.py",
    "tests/mistakes/test_declaring.py",
    "tests/mistakes/test_loading.py",
    "tests/mistakes/test_running.py",
    "tests/vigil/test_wheel.py",
)
"""What is run by default; about 3 minutes for each Python on two cores."""

ELSEWHERE: Final = "~/.pyenv/versions/{version}.*/bin/python"
"""Where another Python may lie that is not on the path."""


def named() -> Sequence[str]:
    """Return the versions that the metadata names."""
    return NAMED.findall((ROOT / "pyproject.toml").read_text())


def found(version: str) -> Path | None:
    """Return a Python of that version that runs here."""
    return next((each for each in _candidates(version) if _is(version, each)), None)


def _candidates(version: str) -> Iterator[Path]:
    if on_path := shutil.which(f"python{version}"):
        yield Path(on_path)
    pattern = Path(ELSEWHERE.format(version=version)).expanduser()
    yield from sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))


def _is(version: str, python: Path) -> bool:
    """Return whether it runs: what stands in the place of a Python may know of none."""
    says = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", says], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def tried(version: str, python: Path, paths: Sequence[str]) -> bool:
    """Make the environment of a Python, and return whether the tests pass on it."""
    venv = ROOT / f".venv-{version}"
    made = ["make", "--quiet", f"VENV={venv.name}", f"PYTHON={python}", f"{venv.name}/.ready"]
    if subprocess.run(made, cwd=ROOT, check=False).returncode:
        return False
    test = [venv / "bin/python", "-m", "pytest", "--quiet", "--numprocesses", "3", "--dist"]
    return not subprocess.run([*test, "loadfile", *paths], cwd=ROOT, check=False).returncode


def main() -> int:
    """Try each; 1: the tests fail on one of them, or none was found."""
    paths = os.environ.get("PATHS", "").split() or PATHS
    passed: dict[str, bool] = {}
    for version in named():
        if (python := found(version)) is None:
            print(f"Python {version}: not found on this machine", flush=True)
            continue
        print(f"Python {version}: {python}", flush=True)
        passed[version] = tried(version, python, paths)
    for version, has_passed in passed.items():
        print(f"Python {version}: {'passed' if has_passed else 'FAILED'}")
    return 0 if passed and all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
