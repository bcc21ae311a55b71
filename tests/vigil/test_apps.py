"""Finding the app that a node is to run."""

from __future__ import annotations

import sys

import pytest

from vigil.errors import Mistake
from vigil.serving import app


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
    (tmp_path / "needy.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("watch", "wrong", "deaf", "vague", "needy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in ("watch", "wrong", "deaf", "vague", "needy"):
        sys.modules.pop(name, None)


def test_an_app_in_the_current_folder_is_found():
    assert sorted(app.load("watch:app").actors) == ["watcher"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("watch", "write module:attribute"),
        ("wath:app", "no module named 'wath' in /"),
        ("watch.deeper:app", "no module named 'watch.deeper'"),
        ("watch:ap", "there is no 'ap' in watch, which is /.*/watch.py"),
        ("watch:not_an_app", "is a int, not an App"),
        ("wrong:app", "is not an Actor"),
        ("deaf:app", "--app deaf:app: Webhook: url: not a URL"),
        ("vague:app", "--app vague:app: actor_id: none is given"),
        ("needy:app", "imports 'no_such_package', which is not installed"),
    ],
)
def test_what_was_looked_for_is_named(name, why):
    with pytest.raises(Mistake, match=why):
        app.load(name)
