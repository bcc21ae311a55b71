"""Which error class a failed request to a model has, and the exception that a record makes again.

The library's exceptions are sorted by what they mean, whatever the provider; this sorts them into
the classes that tools have, so that the same retries and breakers fit.
"""

from __future__ import annotations

from typing import Final

import msgspec
from pydantic_ai import exceptions

from engine.agents.classes import (
    CONTEXT_TOO_LONG,
    INVALID_ANSWER,
    OUTPUT_TOO_LONG,
    QUOTA_EXCEEDED,
    REFUSED,
)
from engine.agents.unit import UnitOutcome
from engine.app.tools import RATE_LIMITED, class_of_status
from streams.json import NOTHING, raw

BODY_CHARS_MAX: Final = 2_000
"""Most of a provider's answer to a request that failed, in characters."""

CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (exceptions.ModelRateLimitError, RATE_LIMITED),
    (exceptions.ModelQuotaExceededError, QUOTA_EXCEEDED),
    (exceptions.ModelContextWindowExceededError, CONTEXT_TOO_LONG),
    (exceptions.ModelAuthenticationError, "tool_auth_failed"),
    (exceptions.ModelNotFoundError, "tool_not_found"),
    (exceptions.ModelRequestTimeout, "tool_timeout"),
    (exceptions.ModelTimeoutError, "tool_timeout"),
    (exceptions.ModelConnectionError, "tool_unavailable"),
    (exceptions.ModelUnavailableError, "tool_unavailable"),
    (exceptions.ModelServerError, "tool_unavailable"),
    (exceptions.ContentFilterError, REFUSED),
    (exceptions.OutputTokenLimitExceeded, OUTPUT_TOO_LONG),
    (exceptions.UnexpectedModelBehavior, INVALID_ANSWER),
)
"""Error of pydantic-ai → error class; the first one that fits."""


class UnitFailed(Exception):
    """What an agent did has failed, as it was recorded."""

    def __init__(self, error_class: str, detail: str) -> None:
        """`error_class` is stable, `detail` for people."""
        super().__init__(f"{error_class}: {detail}")
        self.error_class, self.detail = error_class, detail


class _Said(msgspec.Struct, omit_defaults=True):
    """What a record has of a failed request, beside its class and its text."""

    model: str = ""
    status: int = 0


def class_of(error: BaseException) -> str:
    """Return the error class of an exception of the library; empty: it is none of these."""
    if found := next((name for kind, name in CLASSES if isinstance(error, kind)), ""):
        return found
    if isinstance(error, exceptions.ModelHTTPError):
        return class_of_status(error.status_code)
    return "tool_unavailable" if isinstance(error, exceptions.ModelAPIError) else ""


def is_billed(error: exceptions.ModelAPIError) -> bool:
    """Return whether the provider may take money for a request that failed."""
    return not isinstance(error, exceptions.ModelHTTPError)  # Which answers that it does not.


def failed(error: exceptions.ModelAPIError) -> UnitOutcome:
    """Return what is recorded of a request that failed."""
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else 0
    return UnitOutcome(
        result=raw(_Said(error.model_name, status)),
        error_class=class_of(error),
        is_billed=is_billed(error),
        error_detail=f"{type(error).__name__}: {error}"[:BODY_CHARS_MAX],
        retry_after_s=error.retry_after or 0.0,
    )


def raised_again(error_class: str, detail: str, result: msgspec.Raw) -> Exception:
    """Return the exception of a failure that was recorded."""
    said = _Said() if result == NOTHING else msgspec.json.decode(result, type=_Said)
    if said.status:
        return exceptions.ModelHTTPError(said.status, said.model, detail)
    if said.model:
        return exceptions.ModelAPIError(said.model, detail)
    return UnitFailed(error_class, detail)
