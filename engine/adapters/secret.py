"""What must not stand in code: passwords, keys, and addresses that whoever has them may use."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeAlias

from engine.adapter import DeliveryFailed
from engine.errors import BadAdapter

Secret: TypeAlias = str | Callable[[], str]
"""A text, or what returns it: called for every delivery, so that it may change under way."""

MISSING: Final = "secret_missing"
"""The error class of a delivery on a node that was not given the secret."""

BAD: Final = "bad_secret"
"""The error class of a delivery whose secret is none, for good."""


def env(variable: str) -> Callable[[], str]:
    """Return a secret that is in an environment variable of the node, without space around it.

    A node without it still starts; what it is to deliver fails there as `secret_missing`, for now.
    """

    def read() -> str:
        value = os.environ.get(variable, "").strip()
        if not value:
            raise DeliveryFailed(MISSING, f"the environment variable {variable} is not set")
        return value

    return read


def checked_secret(secret: Secret, *, of: str, argument: str) -> Secret:
    """Return `secret` if it can be one.

    Raises:
        BadAdapter: it is neither a text nor a function. The secret is not in what it says.
    """
    if isinstance(secret, str) or callable(secret):
        return secret
    kind = "None" if secret is None else type(secret).__name__
    raise BadAdapter(of, argument, f"neither a text nor a function that returns one, but {kind}")


def told(secret: Secret, *, of: str) -> str:
    """Return what `secret` is now.

    Args:
        secret: the secret.
        of: adapter and argument, for whoever reads that it is missing.

    Raises:
        DeliveryFailed: it is in an environment variable that is not set, or is no text.
    """
    try:
        value: object = secret if isinstance(secret, str) else secret()
    except DeliveryFailed as error:
        raise DeliveryFailed(
            error.error_class,
            f"{of}: {error.detail}",
            permanent=error.permanent,
            retry_after_s=error.retry_after_s,
        ) from error
    if not isinstance(value, str):
        kind = type(value).__name__
        raise DeliveryFailed(BAD, f"{of}: not a text, but {kind}", permanent=True)
    return value
