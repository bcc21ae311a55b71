"""An archive in a store of objects that speaks S3: of AWS, or MinIO, Ceph, Garage and their like.

A file is one object, put with `If-None-Match: *`: the store has to know that, as AWS does since
2024. Credentials are where AWS's own programs look for them: in the environment, or the machine's
role.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import S3Store

from streams.errors import Unavailable
from streams.ports.archive import checked_name

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, RetryConfig, S3Config

T = TypeVar("T")

REQUEST_S: Final = 60.0
"""Longest that one request may take, in seconds: a segment may have 64 MiB."""

CONNECT_S: Final = 5.0
RETRIES_MAX: Final = 5
RETRY_S: Final = 90.0
"""How long one call is tried again, in seconds."""


class S3Archive:
    """See `ArchiveStore`."""

    def __init__(
        self, bucket: str, *, prefix: str = "", region: str = "", endpoint: str = ""
    ) -> None:
        """Name a bucket that is there.

        Args:
            prefix: What the key of every object begins with.
            region: Empty: what AWS_REGION says.
            endpoint: The URL of a store that is not AWS's; `http://` is not encrypted.
        """
        self._address = f"s3://{bucket}/{prefix}".rstrip("/")
        config: S3Config = {"virtual_hosted_style_request": not endpoint}
        if region:
            config["region"] = region
        if endpoint:
            config["endpoint"] = endpoint
        client: ClientConfig = {
            "timeout": timedelta(seconds=REQUEST_S),
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "allow_http": endpoint.startswith("http://"),
        }
        retries: RetryConfig = {
            "max_retries": RETRIES_MAX,
            "retry_timeout": timedelta(seconds=RETRY_S),
        }
        self._store = S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options=client,
            retry_config=retries,
        )

    @property
    def address(self) -> str:
        """See `ArchiveStore.address`."""
        return self._address

    async def create(self, name: str, data: bytes) -> bool:
        """See `ArchiveStore.create`."""
        path = checked_name(name)

        async def put() -> bool:
            try:
                await obstore.put_async(self._store, path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

        return await self._done(put)

    async def read(self, name: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """See `ArchiveStore.read`."""
        path = checked_name(name)
        options: GetOptions | None = None
        if start < 0:
            options = {"range": {"suffix": -start}}
        elif length is not None:
            options = {"range": (start, start + length)}
        elif start:
            options = {"range": {"offset": start}}

        async def get() -> bytes | None:
            try:
                found = await obstore.get_async(self._store, path, options=options)
                data = bytes(await found.bytes_async())
            except (NotFoundError, FileNotFoundError):
                return None
            return data if length is None else data[:length]

        return b"" if length == 0 else await self._done(get)

    async def delete(self, name: str) -> None:
        """See `ArchiveStore.delete`."""
        path = checked_name(name)

        async def deleted() -> None:
            with suppress(NotFoundError, FileNotFoundError):
                await obstore.delete_async(self._store, path)

        await self._done(deleted)

    async def names(self, under: str) -> Sequence[str]:
        """See `ArchiveStore.names`."""
        prefix = f"{checked_name(under)}/"

        async def listed() -> Sequence[str]:
            found = obstore.list(self._store, prefix=prefix)
            return sorted([each["path"] async for batch in found for each in batch])

        return await self._done(listed)

    async def _done(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await work()
        except BaseError as error:
            first_line = str(error).partition("\n")[0]
            raise Unavailable(f"archive {self._address}", detail=first_line) from error
