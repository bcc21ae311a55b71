"""What each warm command has before it begins, of the process that it is forked from."""

from __future__ import annotations

import gc
from importlib import import_module
from pkgutil import walk_packages

import tests.vigil.warm  # noqa: F401 - it has what the forked process calls
import vigil
from vigil.commands import ENTRIES, command_for

for _module in walk_packages(vigil.__path__, "vigil."):
    import_module(_module.name)  # A command imports what it needs when it runs.
import_module("pydantic_ai.models.openai")  # Agents have it; it takes 0.6 s of a processor.

# Typer takes 30 to 60 ms of a processor to make the command line.
for _name in ENTRIES:
    command_for(frozenset({_name}))

# A command that collects garbage leaves alone what was imported: there is none, and a look at it
# copies it. Such a command takes 50 ms of a processor instead of 140.
gc.collect()
gc.freeze()
