"""Finding the app that a node is to run."""

from __future__ import annotations

import sys

import pytest

from vigil.errors import Mistake
from vigil.serving import app

NAMES = ("watch", "wrong", "deaf", "vague", "ends")


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch, write_app):
    write_app()
    (tmp_path / "wrong.py").write_text("from vigil import App\napp = App(actors=['me'])\n")
    (tmp_path / "deaf.py").write_text(
        "from engine.adapters import Webhook\npager = Webhook('example.com')\n"
    )
    (tmp_path / "vague.py").write_text(
        "from vigil import BadDefinition\nraise BadDefinition('actor_id', 'none is given')\n"
    )
    (tmp_path / "ends.py").write_text("raise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


def test_an_app_in_the_current_folder_is_found():
    assert sorted(app.load("watch:app").actors) == ["watcher"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("watch.deeper:app", "no module named 'watch.deeper'"),
        ("wrong:app", "is not an Actor"),
        ("deaf:app", "--app deaf:app: deaf.py:2: Webhook: url: not a URL"),
        ("vague:app", "--app vague:app: vague.py:2: actor_id: none is given"),
        ("ends:app", "^--app ends:app: ends.py:1: SystemExit$"),
    ],
)
def test_what_was_looked_for_is_named(name, why):
    with pytest.raises(Mistake, match=why):
        app.load(name)
