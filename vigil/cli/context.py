"""What a command knows before it starts: the flags that stand before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import typer

if TYPE_CHECKING:
    from vigil.settings import Reading


def given(ctx: typer.Context) -> Mapping[str, object]:
    """Return the settings that were given as flags; None for those that were not."""
    return cast("Mapping[str, object]", ctx.obj or {})


def reading(ctx: typer.Context, **known: object) -> Reading:
    """Return the settings in force; `known` overrides even the flags.

    Raises:
        Mistake: a setting cannot work.
    """
    from vigil import settings

    return settings.read({**given(ctx), **known})
