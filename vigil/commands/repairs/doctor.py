"""`vigil doctor`: is everything as it must be, and if not, what to do."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import typer

from vigil import options
from vigil.commands.call import call
from vigil.options import IsJson
from vigil.settings import shown
from vigil.version import vigil_version

if TYPE_CHECKING:
    from vigil.asking.repairs.diagnosis import DoctorCheck
    from vigil.printing.tables import Row


def doctor(ctx: typer.Context, *, is_json: IsJson = False) -> None:
    """Check settings, servers, streams and tables. Exit code 1: something is wrong."""
    from vigil.errors import EXIT_TROUBLE
    from vigil.printing import tables

    config = options.config(ctx)
    checks = call(ctx, lambda client: client.repairs.doctor())
    settings = [
        {"setting": key, "value": shown(key, getattr(config.settings, key)), "from": origin}
        for key, origin in config.origins.items()
    ]
    installed = {
        "vigil": vigil_version(),
        "python": platform.python_version(),
        "nats-py": version("nats-py"),
    }
    if is_json:
        print(tables.as_json({"versions": installed, "settings": settings, "checks": checks}))
    else:
        print_diagnosis(installed, settings, checks)
    if any(check.status == "problem" for check in checks):
        raise typer.Exit(EXIT_TROUBLE)


def print_diagnosis(
    installed: Mapping[str, str], settings: Sequence[Row], checks: Sequence[DoctorCheck]
) -> None:
    """Print versions, settings, and what was checked."""
    from vigil.printing import tables

    show = tables.terminal().print
    show(" · ".join(f"{name} {each}" for name, each in installed.items()), end="\n\n")
    show(tables.table(settings, ("setting", "value", "from"), title="Settings"))
    show()
    show(tables.table(map(_as_read, checks), CHECKS, title="Checks"))


CHECKS: Final = ("status", "what was checked", "found", "what to do")


def _as_read(check: DoctorCheck) -> Mapping[str, object]:
    words = (check.status, check.what, check.says, check.remedy)
    return dict(zip(CHECKS, words, strict=True))
