"""An S3 server of this machine, for the tests of archives: moto's, in a thread of this process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from unittest.mock import patch

from streams.archive.s3 import S3Archive

BUCKET = "vigil-archive"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@cache
def s3_endpoint() -> str:
    """Start the server of this process, which ends with it, and return its URL."""
    import boto3  # noqa: PLC0415 - both take a second to import
    from moto.server import ThreadedMotoServer  # noqa: PLC0415

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    with patch.dict(os.environ, KEYS):
        boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket=BUCKET)
    return url


@asynccontextmanager
async def s3_archive(*, prefix: str) -> AsyncIterator[S3Archive]:
    """Yield an archive on that server."""
    with patch.dict(os.environ, KEYS):
        yield S3Archive(BUCKET, prefix=prefix, region="us-east-1", endpoint=s3_endpoint())
