"""Runs a projection of a user, and finds it: `module:attribute`, in the current folder."""

from __future__ import annotations

import asyncio
import os
import sys

from projections.custom.projection import Projection, schema_of
from projections.postgres.custom.tables import OwnTables
from projections.postgres.projector import project
from streams.clock import SystemClock
from vigil.asking.connect import connected, pooled
from vigil.errors import Mistake, told
from vigil.serving import telemetry
from vigil.serving.app import find
from vigil.serving.exit import EXIT_S
from vigil.serving.signals import run_program, stopping
from vigil.settings import Config, shown


def load_projection(name: str, *, option: str = "") -> Projection:
    """Return the projection called `name`, such as `reports:ends`; raise `Mistake` as `load`."""
    found = find(name, option=option)
    lacking = [each for each in ("name", "tables", "project") if not hasattr(found, each)]
    if lacking or isinstance(found, type):
        why = "it is a class: make an object of it" if isinstance(found, type) else ""
        said = why or f"it has no {lacking[0]!r}, as a projection has"
        raise Mistake(f"{f'{option} {name}'.strip()}: {said}")
    projection: Projection = found  # type: ignore[assignment] # as far as can be seen here
    with told():
        OwnTables(projection)
    return projection


def serve_projection(config: Config, projection: Projection) -> None:
    """Keep the tables of a projection up to date, until SIGINT or SIGTERM."""
    form, level = config.settings.log, config.settings.log_level
    telemetry.log_to(sys.stderr, form=form, level=level, node=config.node)
    telemetry.export(os.environ, node=config.node)
    run_program(_serve(config, projection))


async def _serve(config: Config, projection: Projection) -> None:
    stop, tables = asyncio.Event(), OwnTables(projection)
    async with (
        pooled(config, schema=schema_of(projection.name)) as pool,
        connected(config, creates=False, is_staying=True) as ports,
    ):
        with stopping(stop.set, within_s=EXIT_S):
            where = shown("postgres_dsn", config.settings.postgres_dsn)
            print(
                f"projection {projection.name} · stack {config.stack.name} · {where}, "
                f"schema {tables.schema}",
                flush=True,
            )
            await project(
                ports,
                pool,
                node=config.node,
                clock=SystemClock(),
                stop=stop,
                projected=tables.projected,
            )
