"""The table `[archive]` of `vigil.toml`: where the journal is archived to.

[archive]
store = "/var/lib/vigil/archive"

How long the journal keeps what has ended is said with all other times: `journal` of `[retention]`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pydantic import Field

from engine.errors import BadDefinition
from engine.validation import Strict, parsed
from vigil.errors import Mistake, NotFound
from vigil.settings import ARCHIVE, FILE, Config, table_in

if TYPE_CHECKING:
    from streams.jetstream import LinkSettings
    from streams.ports.archive import ArchiveStore

NATS: Final = "nats"
"""The store that is an object store of the stack's own servers."""

_S3: Final = "s3"


class ArchiveSpec(Strict):
    """The table, as the file has it."""

    store: str = Field(min_length=1, max_length=1_000)
    """A folder, `s3://bucket/prefix`, or `nats`."""
    endpoint: str = Field(default="", max_length=1_000)
    """The URL of a store that speaks S3 and is not AWS's."""
    region: str = Field(default="", max_length=100)
    """Of S3; empty: what AWS_REGION says."""
    waits_for_rows: bool = True
    """Whether nothing is purged that the tables do not have. False: the stack has no tables."""


def archive_in(folder: Path | None = None) -> ArchiveSpec | None:
    """Return what the file in `folder`, or the current one, says; None: it names no archive.

    Raises:
        Mistake: something in the table cannot be; the error names it.
    """
    file = (folder or Path()) / FILE
    table = table_in(file, ARCHIVE)
    if table is None:
        return None
    try:
        spec = parsed(ArchiveSpec, dict(table))
    except BadDefinition as error:
        raise Mistake(f"{FILE}: [{ARCHIVE}]: {error}") from error
    return _checked(spec, f"{FILE}: [{ARCHIVE}]: store")


def required(store: str | None = None) -> ArchiveSpec:
    """Return what `archive_in` does, or with another store; `Mistake` if nobody names any."""
    spec = archive_in()
    if store:
        said = {} if spec is None else spec.model_dump()
        return _checked(ArchiveSpec(**{**said, "store": store}), "--store")
    if spec is None:
        raise Mistake(
            "no archive is named",
            remedy=f"give --store, or write [{ARCHIVE}] into {FILE}, and in it store",
        )
    return spec


def _checked(spec: ArchiveSpec, named_by: str) -> ArchiveSpec:
    place = urlsplit(spec.store)
    if place.scheme == _S3 and not place.netloc:
        raise Mistake(f"{named_by}: name a bucket, such as s3://bucket/prefix")
    if "://" in spec.store and place.scheme != _S3:  # guard: archive-of-a-known-kind
        raise Mistake(f"{named_by}: {spec.store!r} is no folder, s3://bucket/prefix or nats")
    return spec


@asynccontextmanager
async def opened_store(
    config: Config, spec: ArchiveSpec, link: LinkSettings
) -> AsyncIterator[ArchiveStore]:
    """Yield the store that the settings name; `link`: how the stack's servers are reached.

    Raises:
        Mistake: a package that it needs is not installed.
    """
    _require("zstandard", extra="archive")
    if spec.store == NATS:
        from streams.jetstream.archive.store import jetstream_archive

        async with jetstream_archive(
            config.settings.nats_url, stack=config.stack, settings=link
        ) as store:
            yield store
        return
    if spec.store.startswith(f"{_S3}:"):
        _require("obstore", extra="s3")
        from streams.archive.s3 import S3Archive

        place = urlsplit(spec.store)
        yield S3Archive(
            place.netloc,
            prefix=place.path.strip("/"),
            region=spec.region,
            endpoint=spec.endpoint,
        )
        return
    from streams.archive.folder import FolderArchive

    yield FolderArchive(_folder(spec.store))


@asynccontextmanager
async def opened_to_read(
    config: Config, spec: ArchiveSpec, link: LinkSettings
) -> AsyncIterator[ArchiveStore]:
    """Yield what `opened_store` does, unless it is a folder that is not there: `NotFound`."""
    is_folder = spec.store != NATS and "://" not in spec.store
    if is_folder and not _folder(spec.store).is_dir():  # guard: archive-folder-is-there
        raise NotFound(
            f"there is no folder {spec.store}",
            remedy="the first segment makes it; if there was one, see where it is now",
        )
    async with opened_store(config, spec, link) as store:
        yield store


def _folder(text: str) -> Path:
    return Path(text).expanduser()


def _require(package: str, *, extra: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        needs = f"install it: pip install 'vigil-engine[{extra}]'"
        raise Mistake(f"the archive needs the package {package}", remedy=needs)
