"""What the tests of adapters share."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

import pytest
import trustme

from streams.clock import SystemClock

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class FixedClock(SystemClock):
    """Says one wall time."""

    def now(self) -> datetime:
        return NOW


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have requests go to loopback, whatever this machine's own do."""
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """A certificate authority that nobody knows."""
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    """What a server on loopback shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """What a client trusts that knows the authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context
