"""The exceptions of well-known clients have the error classes that the reference lists."""

from __future__ import annotations

import urllib.error
from email.message import Message

import asyncpg
import httpx
import pytest

from engine.app.tools import ToolFailed
from engine.usercode.call import attempt
from engine.usercode.client_errors import class_of_client_error

REQUEST = httpx.Request("GET", "http://status.example")


def answered(status: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("no", request=REQUEST, response=httpx.Response(status))


def refused(status: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://status.example", status, "no", Message(), None)


def made(name: str, **fields: object) -> Exception:
    """Return an exception of a client that is not installed here, by its full name."""
    module, _, own = name.rpartition(".")
    error = type(own, (Exception,), {"__module__": module})()
    for field, value in fields.items():
        setattr(error, field, value)
    return error


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (httpx.ConnectError("refused"), "tool_unavailable"),
        (httpx.ReadTimeout("late"), "tool_timeout"),
        (answered(503), "tool_unavailable"),
        (answered(429), "tool_rate_limited"),
        (answered(401), "tool_auth_failed"),
        (answered(418), "http_418"),
        (urllib.error.URLError("refused"), "tool_unavailable"),
        (refused(404), "tool_not_found"),
        (asyncpg.exceptions.QueryCanceledError("late"), "tool_timeout"),
        (asyncpg.exceptions.ConnectionDoesNotExistError("gone"), "tool_unavailable"),
        (asyncpg.exceptions.CannotConnectNowError("starting up"), "tool_unavailable"),
        (asyncpg.exceptions.TooManyConnectionsError("full"), "tool_unavailable"),
        (asyncpg.exceptions.InvalidPasswordError("no"), "tool_auth_failed"),
        (asyncpg.exceptions.InsufficientPrivilegeError("no"), "tool_auth_failed"),
        (made("aiohttp.client_exceptions.ClientConnectionError"), "tool_unavailable"),
        (made("aiohttp.client_exceptions.ClientResponseError", status=502), "tool_unavailable"),
        (made("requests.exceptions.ConnectionError"), "tool_unavailable"),
        (made("requests.exceptions.Timeout"), "tool_timeout"),
        (asyncpg.exceptions.UndefinedTableError("no table"), ""),
        (ValueError("no"), ""),
    ],
)
def test_an_exception_of_a_client_has_the_class_of_what_happened(error, error_class):
    assert class_of_client_error(error) == error_class


async def test_a_tool_may_let_it_pass():
    async def ask():
        raise httpx.ConnectError("refused")

    with pytest.raises(ToolFailed) as failed:
        await attempt(ask())
    assert str(failed.value) == "tool_unavailable: ConnectError: refused"
