"""What `vigil retention` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vigil.program import Vigil


@pytest.fixture
def projected(standing: Vigil) -> Vigil:
    """A stack that has tables, and no rows."""
    with standing.running("project"):
        standing.wait_for("projections", "status", until=lambda view: view["projections"])
        yield standing


def test_times_are_told_for_as_long_as_no_node_has_noted_them(projected: Vigil, tmp_path: Path):
    (tmp_path / "vigil.toml").write_text('[retention]\ndone = "30d"\n')
    shown = projected.run("retention", "show")
    says = "vigil.toml says done 30d, failed 120d: a node that starts here notes that"
    assert says in shown.stdout, shown.stderr

    (tmp_path / "vigil.toml").write_text("[retention]\n")
    assert "vigil.toml" not in projected.run("retention", "show").stdout


def test_a_hold_of_nothing_is_refused_and_an_order_names_what_is_held(projected: Vigil):
    refused = projected.run("retention", "hold", "add", "subject", "host/web-1")
    assert "held by its value alone" in refused.stderr
    held = projected.run("retention", "hold", "add", "subject", "web-1", "--unseen")
    assert held.returncode == 0, held.stderr
    assert "hold added: subject web-1" in projected.run("orders", "list").stdout
