"""A real browser, and a page in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from playwright.async_api import Browser, Page
from starlette.applications import Starlette

from tests.web.chromium import chromium, paged
from vigil.serving.http_program import HttpProgram
from vigil.web.serve import GRACE_S, listen


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """A browser; without one, the test is skipped."""
    async with chromium() as browser:
        yield browser


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page of somebody who has not signed in."""
    async with paged(browser) as page:
        yield page


@asynccontextmanager
async def served_here(app: Starlette) -> AsyncIterator[str]:
    """Serve a console in this process, and yield where."""
    socket = listen("127.0.0.1", 0)
    settings = uvicorn.Config(
        app, log_config=None, lifespan="on", timeout_graceful_shutdown=GRACE_S
    )
    server = HttpProgram(settings)
    running = asyncio.create_task(server.serve([socket]))
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.stop()
        await running
