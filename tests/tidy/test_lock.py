"""The lock holds what pyproject.toml asks for, and nothing but names and versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"([A-Za-z0-9._-]+)==[A-Za-z0-9.+!-]+")


def locked() -> list[str]:
    return (ROOT / "requirements.lock").read_text().splitlines()


def normal(name: str) -> str:
    """Return the name under which two spellings are one package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_line_is_a_name_and_a_version():
    assert [line for line in locked() if not PINNED.fullmatch(line)] == []


def test_everything_asked_for_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [one for extra in project["optional-dependencies"].values() for one in extra]
    asked = {normal(re.split(r"[<>=;\s]", one)[0]) for one in [*project["dependencies"], *extras]}
    assert asked <= {normal(line.partition("==")[0]) for line in locked()}
