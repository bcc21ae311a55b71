"""What tests of these tools share."""

from __future__ import annotations

from tests.engine.adapters.conftest import authority, server_tls, trusting
from tests.projections.conftest import postgres

__all__ = ["authority", "postgres", "server_tls", "trusting"]
