"""`vigil doctor`: is everything as it must be, and if not, what to do."""

from __future__ import annotations

import typer

from vigil.cli import context
from vigil.cli.output import IsJson


def doctor(ctx: typer.Context, *, is_json: IsJson = False) -> None:
    """Check settings, servers, streams and tables; exit code 1 if anything is wrong."""
    import asyncio

    import msgspec

    from vigil import diagnosis, tables
    from vigil.errors import EXIT_TROUBLE

    reading = context.reading(ctx)
    checks = asyncio.run(diagnosis.examine(reading))
    settings, versions = diagnosis.settings_in_force(reading), diagnosis.versions()
    if is_json:
        print(tables.as_json({"versions": versions, "settings": settings, "checks": checks}))
    else:
        show = tables.terminal().print
        show(" · ".join(f"{name} {version}" for name, version in versions.items()), end="\n\n")
        show(tables.table(settings, ("setting", "value", "from")), end="\n\n")
        rows = [msgspec.structs.asdict(check) for check in checks]
        show(tables.table(rows, ("status", "what", "says", "remedy")))
    if any(check.status == "problem" for check in checks):
        raise typer.Exit(EXIT_TROUBLE)
