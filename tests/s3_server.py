"""An S3 server of this machine, for the tests of archives: moto's, in a thread of this process.

It answers one request at a time: moto looks for `If-None-Match` first and stores then, so two that
came at once would both create the file. S3 itself, and what is like it, does that in one.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from threading import Lock, Thread
from typing import TYPE_CHECKING
from unittest.mock import patch

from streams.archive.s3 import S3Archive

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

BUCKET = "vigil-archive"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@cache
def s3_endpoint() -> str:
    """Start the server of this process, which ends with it, and return its URL."""
    import boto3  # noqa: PLC0415 - both take a second to import
    from moto.server import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415
    from werkzeug.serving import make_server  # noqa: PLC0415

    app = one_at_a_time(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.port}"
    with patch.dict(os.environ, KEYS):
        boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket=BUCKET)
    return url


def one_at_a_time(app: WSGIApplication) -> WSGIApplication:
    """Return `app`, which is given a request once the one before is answered."""
    lock = Lock()

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with lock:
            return app(environ, start_response)

    return answer


@asynccontextmanager
async def s3_archive(*, prefix: str) -> AsyncIterator[S3Archive]:
    """Yield an archive on that server."""
    with patch.dict(os.environ, KEYS):
        yield S3Archive(BUCKET, prefix=prefix, region="us-east-1", endpoint=s3_endpoint())
