"""Fragments become a section of the changelog, above those that are there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from vigil.version import vigil_version

ROOT = Path(__file__).parents[2]

MADE = """\
## 9.8.0 (2030-01-02)

### New

- Findings sing,
  and loudly.
- Outputs dance.

### Mended

- Nothing limps.

## """


def test_fragments_become_the_newest_section_and_are_removed(tmp_path):
    for name in ("pyproject.toml", "CHANGELOG.md", "changes/template.jinja", "changes/README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changes = tmp_path / "changes"
    (changes / "a-song.feature.md").write_text("Findings sing,\nand loudly.\n")
    (changes / "b-dance.feature.md").write_text("Outputs dance.\n")
    (changes / "no-limp.fix.md").write_text("Nothing limps.\n")
    words = ["build", "--yes", "--version", "9.8.0", "--date", "2030-01-02"]
    subprocess.run([sys.executable, "-m", "towncrier", *words], cwd=tmp_path, check=True)

    assert MADE in (tmp_path / "CHANGELOG.md").read_text()
    assert sorted(each.name for each in changes.iterdir()) == ["README.md", "template.jinja"]


def test_the_newest_section_is_that_of_this_version():
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == vigil_version()
