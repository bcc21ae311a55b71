"""Prints how long an episode's ways through the engine are: see `tests/walk/trace.py`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from tests.walk.chain import longest_chain
from tests.walk.trace import Walk
from tests.walk.ways import walks

COLUMNS = "{:<22} {:>6} {:>10} {:>8}"


def main() -> None:
    """Walk every way once, and print what was entered."""
    chosen = _arguments()
    found, chain = walks(), longest_chain()
    if chosen.json:
        ways = {name: _shown(walk) for name, walk in found.items()}
        print(json.dumps({"ways": ways, "chain": chain}, indent=2))
        return
    _tell(found, chain)
    if chosen.files:
        _tell_files(found)


def _tell(found: dict[str, Walk], chain: Sequence[str]) -> None:
    print(COLUMNS.format("way", "files", "functions", "changes"))
    for name, walk in found.items():
        print(COLUMNS.format(name, len(walk.files), walk.functions, walk.changes))
    print(f"\nlongest chain of imports: {len(chain)} modules")
    print(" → ".join(chain))


def _tell_files(found: dict[str, Walk]) -> None:
    for name, walk in found.items():
        print(f"\n{name}, in order of the first entry")
        for file, functions in walk.files.items():
            print(f"  {file} ({len(functions)}): {', '.join(functions)}")


def _shown(walk: Walk) -> dict[str, object]:
    files = {file: list(functions) for file, functions in walk.files.items()}
    return {"files": files, "functions": walk.functions, "changes": walk.changes}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.walk", description=__doc__)
    parser.add_argument("--files", action="store_true", help="list files and their functions")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
