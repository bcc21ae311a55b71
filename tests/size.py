"""How long a test is that has a short version and a long one: short, unless `VIGIL_TEST_SIZE` says.

    VIGIL_TEST_SIZE=full                  everything at its longest, as `make nightly` has it
    VIGIL_TEST_SIZE="moments worlds=300"  this at its longest, and of that so many

What is too slow for `make test` even at its shortest has the mark `nightly` instead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

FULL: Final = "full"

WORDS: Final = frozenset(
    {
        "aged",  # How many simulated stacks archive and purge for some days.
        "agents",  # Each commit of an agent at which nodes are killed, not two of them.
        "archived",  # How often who archives is killed.
        "attacked",  # A loss and a delay of each commit, not one of the two.
        "children",  # Each commit of a parent at which nodes are killed, not three of them.
        "contracts",  # Each combination of adapter and partitions, not each of both.
        "cut",  # How many simulated worlds have their journals cut before they become rows.
        "flooded",  # How many updates a page is sent at once.
        "historic",  # How many events a new actor of a feed begins with.
        "instances",  # How many instances of a workflow.
        "limited",  # How many events that a limit holds back.
        "moments",  # Each moment at which a node may die, not every 13th.
        "past",  # How many random lives whose past is compared with what was said then.
        "rebuilt",  # How many episodes have their rows made anew under load.
        "retained",  # How many days a stack runs with retention on.
        "served",  # Each short scenario of gates on a server, not those of up to 3 s.
        "shared",  # How many events two nodes share.
        "signalled",  # How many episodes get a burst of signals.
        "worlds",  # How many simulated worlds.
    }
)


def asked_in(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the words of `VIGIL_TEST_SIZE`, each with its number; an empty one is the longest."""
    pairs = (word.partition("=") for word in environ.get("VIGIL_TEST_SIZE", "").split())
    asked = {word: number for word, _, number in pairs}
    unknown = asked.keys() - WORDS - {FULL}
    assert not unknown, f"VIGIL_TEST_SIZE knows no {sorted(unknown)}: {FULL}, {sorted(WORDS)}"
    return asked


def is_full(word: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether tests of a kind are at their longest."""
    assert word in WORDS, word
    asked = asked_in(environ)
    return word in asked or FULL in asked


def size(word: str, *, short: int, full: int, environ: Mapping[str, str] = os.environ) -> int:
    """Return how many there are of something."""
    number = asked_in(environ).get(word)
    return int(number) if number else full if is_full(word, environ) else short
