"""Asking before something is done to many things at a time."""

from __future__ import annotations

import sys

import typer


def require_consent(question: str) -> None:
    """Ask, and go on only if that is wanted; without a terminal nobody is there to be asked.

    Raises:
        Mistake: there is no terminal.
    """
    from vigil.errors import Mistake

    if not sys.stdin.isatty():
        raise Mistake("nobody is here to be asked; say --yes")
    typer.confirm(question, abort=True, err=True)
