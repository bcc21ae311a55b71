"""A server of HTTP that is part of a program, which ends it as it ends all else."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import uvicorn


class HttpProgram(uvicorn.Server):
    """A server that ends as our other programs do: on a signal, and with exit code 0."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override] # One, too.
        """Leave signals to the program."""
        return nullcontext()

    def stop(self) -> None:
        """Accept nothing more, and end once what is open has ended."""
        self.should_exit = True
