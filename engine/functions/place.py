"""Where in the user's code something was asked for, for error messages."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from traceback import walk_tb
from typing import Final

from engine.usercode.leavable import innermost_of_user

_ENGINE: Final = str(Path(__file__).parents[1])
"""The folder whose frames are not the user's."""

_LOOP: Final = str(Path(asyncio.__file__).parent)
"""The folder of the event loop, beyond which there is no user."""


def place_of_call() -> str:
    """Return the innermost line of the user that led here: `checks.py:12, in disk`; or nothing."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_ENGINE):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(_LOOP):
        return ""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}, in {frame.f_code.co_name}"


def place_of_error(error: BaseException) -> str:
    """Return the innermost line of the user that `error` went through; or nothing."""
    lines = walk_tb(error.__traceback__)
    return innermost_of_user((frame.f_code, number) for frame, number in lines)
