"""The `vigil` command. See `vigil` for its exit codes."""

from __future__ import annotations

import sys
from typing import NoReturn

from vigil.public import shadowing

EXIT_MISTAKE = 2
"""As in `vigil.errors`, which cannot be imported where our packages are hidden."""


def main() -> NoReturn:
    """Run the command that was typed."""
    if problem := shadowing():
        print(f"vigil: {problem}", file=sys.stderr)
        sys.exit(EXIT_MISTAKE)
    from vigil.commands import run

    run(sys.argv[1:])


if __name__ == "__main__":
    main()
