"""Results of tools that are too large for the journal: put into the object store, and fetched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from engine.errors import EpisodeFailed
from streams.errors import DamagedObject
from streams.model.events import StoredResult
from streams.ports.objects import ObjectStore

Fetch: TypeAlias = Callable[[StoredResult], Awaitable[msgspec.Raw]]
"""Returns a result; `EpisodeFailed`: it is gone, or damaged."""

RESULT_LOST: Final = "result_lost"
"""Error class of an episode that needs a result which the object store does not have any more."""

REMEDY: Final = (
    "results are kept for a time after their last use, VIGIL_RESULTS_DAYS: keep them longer, and"
    " fire the episode again"
)


async def store(objects: ObjectStore, result: msgspec.Raw, *, about: str) -> StoredResult:
    """Put `result` into the object store, and return what refers to it.

    `about` is the subject of the episode on the log.
    """
    data = bytes(result)
    return StoredResult(digest=await objects.put(data, about=about), size_bytes=len(data))


async def fetch(objects: ObjectStore, stored: StoredResult) -> msgspec.Raw:
    """Return a result as it was; `EpisodeFailed`: it is gone, or damaged."""
    try:
        data = await objects.get(stored.digest)
    except DamagedObject as error:
        raise _lost(stored, "is damaged") from error
    if data is None:
        raise _lost(stored, "is gone")
    return msgspec.Raw(data)


async def fetch_again(objects: ObjectStore, stored: StoredResult, *, about: str) -> msgspec.Raw:
    """Return a result as `fetch` does, and have it kept for as long as a new one."""
    result = await fetch(objects, stored)
    await objects.put(bytes(result), about=about)  # guard: used-result-lives-longer
    return result


async def out_of_reach(stored: StoredResult) -> msgspec.Raw:
    """Fail: there is no object store here. A history that was recorded has the results itself."""
    raise _lost(stored, "is in an object store that is out of reach")


def _lost(stored: StoredResult, how: str) -> EpisodeFailed:
    what = f"a result of {stored.size_bytes:,} bytes ({stored.digest[:12]}…) {how}"
    return EpisodeFailed(RESULT_LOST, f"{what}; {REMEDY}")
