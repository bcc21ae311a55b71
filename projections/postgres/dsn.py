"""The address of a Postgres, as a DSN has it. Loads no driver."""

from __future__ import annotations

from urllib.parse import urlsplit

from projections.errors import PostgresUnavailable


def address(dsn: str) -> str:
    """Return host, port and database of `dsn`, no password; it may be `PostgresUnavailable`."""
    try:
        parts = urlsplit(dsn)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = parts = None
    if parts is None or parts.scheme not in {"postgres", "postgresql"}:
        # The cause would show the DSN, and with it the password.
        raise PostgresUnavailable(
            "an unreadable DSN", detail="use postgresql://user:password@host:port/database"
        ) from None
    return f"{host or 'localhost'}:{port or 5432}{parts.path}"
