"""What must not stand in code: passwords, keys, and addresses that whoever has them may use."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeAlias

from engine.adapter import DeliveryFailed

Secret: TypeAlias = str | Callable[[], str]
"""A text, or what returns it: called for every delivery, so that it may change under way."""

MISSING: Final = "secret_missing"
"""The error class of a delivery on a node that was not given the secret."""


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


def told(secret: Secret) -> str:
    """Return what `secret` is now.

    Raises:
        DeliveryFailed: it is in an environment variable that is not set.
    """
    return secret if isinstance(secret, str) else secret()
