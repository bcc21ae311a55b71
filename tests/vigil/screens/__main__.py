"""Writes the screens anew."""

from __future__ import annotations

from tests.vigil.screens.screens import WIDTHS, file_of, screens

for width in WIDTHS:
    file_of(width).write_text(screens(width), encoding="utf-8")
