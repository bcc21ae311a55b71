"""Which error class the exceptions of well-known clients have, without importing any. Pure.

They are known by the names of their classes. So a tool may let them pass, whatever it uses.
"""

from __future__ import annotations

from typing import Final

from engine.app.tools import class_of_status

_CLASSES: Final = {
    "httpx.TimeoutException": "tool_timeout",
    "httpx.TransportError": "tool_unavailable",
    "urllib.error.URLError": "tool_unavailable",
    "aiohttp.client_exceptions.ClientConnectionError": "tool_unavailable",
    "aiohttp.client_exceptions.ClientPayloadError": "tool_unavailable",
    "requests.exceptions.Timeout": "tool_timeout",
    "requests.exceptions.ConnectionError": "tool_unavailable",
    "asyncpg.exceptions.QueryCanceledError": "tool_timeout",
    "asyncpg.exceptions.InvalidAuthorizationSpecificationError": "tool_auth_failed",
    "asyncpg.exceptions.InsufficientPrivilegeError": "tool_auth_failed",
    "asyncpg.exceptions.PostgresConnectionError": "tool_unavailable",
    "asyncpg.exceptions.InsufficientResourcesError": "tool_unavailable",
    "asyncpg.exceptions.OperatorInterventionError": "tool_unavailable",
}
"""Class of an exception, or of one that it inherits from → error class; the nearest one counts."""

_STATUS: Final = {
    "httpx.HTTPStatusError": "response.status_code",
    "urllib.error.HTTPError": "code",
    "aiohttp.client_exceptions.ClientResponseError": "status",
    "requests.exceptions.HTTPError": "response.status_code",
}
"""Class of an exception that an answer over HTTP is → where it has the status."""


def class_of_client_error(error: BaseException) -> str:
    """Return the error class of an exception of a client, by its name; empty: it is none."""
    for each in type(error).__mro__:
        name = f"{each.__module__}.{each.__qualname__}"
        # guard: status-class-of-error
        if (where := _STATUS.get(name)) and (status := _status(error, where)):
            return class_of_status(status)
        if name in _CLASSES:
            return _CLASSES[name]
    return ""


def _status(error: object, where: str) -> int:
    found = error
    for name in where.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, int) else 0
