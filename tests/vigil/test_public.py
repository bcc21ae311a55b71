"""What users import: `vigil` and its modules of public names."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import vigil
from tests.vigil.program import ROOT

MODULES = (
    "vigil",
    "vigil.adapters",
    "vigil.agents",
    "vigil.client",
    "vigil.definitions",
    "vigil.histories",
    "vigil.ports",
    "vigil.projections",
    "vigil.queries",
    "vigil.templates",
    "vigil.testing",
    "vigil.tools",
)


def imported_for_checkers(path: Path) -> dict[str, set[str]]:
    """Module → names, as the block under `if TYPE_CHECKING` imports them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (block,) = (
        node.body
        for node in tree.body
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    )
    return {each.module: {name.name for name in each.names} for each in block}


@pytest.mark.parametrize("name", MODULES)
def test_type_checkers_and_programs_see_the_same_public_names(name):
    module = import_module(name)
    homes = {home: set(names.split()) for home, names in module._HOMES.items()}

    assert homes == imported_for_checkers(Path(module.__file__))
    assert sorted(module.__all__) == sorted(set().union(*homes.values()))


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_can_be_imported(name):
    module = import_module(name)

    for each in module.__all__:
        assert getattr(module, each) is not None


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        vigil.Nonsense  # noqa: B018 - looking is the point


def test_no_module_of_vigil_hides_a_public_name():
    modules = {path.stem for path in (ROOT / "vigil").iterdir()}

    assert not modules & set(vigil.__all__)


def test_import_vigil_loads_nothing_else_of_ours():
    program = "import sys, vigil; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    told = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)

    assert not {"engine", "streams", "projections", "typer"} & set(ast.literal_eval(told))
