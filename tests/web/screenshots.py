"""Pictures of every screen of the console: `python -m tests.web.screenshots FOLDER`."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from playwright.async_api import Page, async_playwright

from projections.embedded import EmbeddedPostgres
from streams.embedded import EmbeddedNats
from tests.vigil.program import Vigil
from tests.web import chromium
from tests.web.addresses import addresses_of
from tests.web.conftest import Served, happen, serving
from tests.web.signing import sign_in

SHAPES = (
    ("1280-light", chromium.WIDE, "light"),
    ("1280-dark", chromium.WIDE, "dark"),
    ("375-light", chromium.PHONE, "light"),
)


TIMEOUT_MS = 120_000
"""Longest wait for a page, also of servers that come back."""

NOTHING = ("/", "/inbox", "/episodes", "/findings", "/events", "/workflows", "/costs")
"""What a stack in which nothing has happened is looked at by."""

REFUSED: Mapping[str, str] = {
    "no-such-page": "/no/such/page",
    "no-such-episode": f"/episodes/{UUID(int=0)}",
    "no-such-time": "/episodes?at=yesterday",
    "no-such-order": "/bulk?do=explode",
}
"""Pages that there are not, and what stands in their place."""


@asynccontextmanager
async def shaped() -> AsyncIterator[Mapping[str, Page]]:
    """Yield a page of each shape, by its name."""
    async with async_playwright() as playwright, AsyncExitStack() as opened:
        browser = await playwright.chromium.launch(
            executable_path=chromium.found(), args=["--no-sandbox"]
        )
        opened.push_async_callback(browser.close)
        found = {
            shape: await opened.enter_async_context(
                chromium.paged(browser, viewport=size, color_scheme=scheme)
            )
            for shape, size, scheme in SHAPES
        }
        for page in found.values():
            page.set_default_timeout(TIMEOUT_MS)
        yield found


async def take(served: Served, folder: Path) -> None:
    """Take a picture of each screen in each shape."""
    where = addresses_of(served.command)
    async with shaped() as pages:
        for shape, page in pages.items():
            await sign_in(page, served)
            for pattern, address in where.items():
                await page.goto(served.address + address)
                await shoot(page, folder, name_of(pattern), shape)


async def take_troubles(
    served: Served, folder: Path, nats: EmbeddedNats, postgres: EmbeddedPostgres
) -> None:
    """Take pictures of what there is nothing of, of what is refused, and of servers away."""
    async with shaped() as pages:
        for shape, page in pages.items():
            await page.goto(f"{served.address}/login")
            await shoot(page, folder, "signed-out", shape)
            await page.get_by_label("Name").fill("ann")
            await page.get_by_label("Password").fill("a wrong password")
            await page.get_by_role("button", name="Sign in").click()
            await shoot(page, folder, "wrong-password", shape)
            await sign_in(page, served, "eve", to="/people")
            await shoot(page, folder, "not-for-you", shape)
            await page.context.clear_cookies()
            await sign_in(page, served)
            for address in NOTHING:
                await page.goto(served.address + address)
                await shoot(page, folder, f"nothing-{name_of(address)}", shape)
            for name, address in REFUSED.items():
                await page.goto(served.address + address)
                await shoot(page, folder, name, shape)
            await page.goto(f"{served.address}/publish")
            await page.get_by_label("Name", exact=True).fill("disk..measured")
            await page.get_by_label("Payload").fill('{"host": ')
            await page.get_by_role("button", name="Publish").click()
            await shoot(page, folder, "refused-form", shape)
        for name, server in (("postgres-away", postgres), ("nats-away", nats)):
            for page in pages.values():
                await page.goto(f"{served.address}/episodes")
            server.stop()
            for shape, page in pages.items():
                await page.get_by_text("nothing here moves").first.wait_for()
                await shoot(page, folder, f"{name}-while-looking", shape)
                await page.goto(f"{served.address}/findings")
                await shoot(page, folder, name, shape)
            server.restart()
        for page in pages.values():  # It looks again by itself, and is not to while it is closed.
            await page.goto("about:blank")


def name_of(pattern: str) -> str:
    """Return the address of a screen as a file's name has it."""
    return re.sub(r"[^a-z]+", "-", pattern).strip("-") or "overview"


async def shoot(page: Page, folder: Path, name: str, shape: str, *, wait_ms: int = 300) -> None:
    """Take a picture of a page once it is drawn."""
    await page.wait_for_timeout(wait_ms)
    await page.screenshot(path=folder / f"{name}-{shape}.png", full_page=True)


def main(folder: Path) -> None:
    """Run the shop and its console, and take the pictures."""
    if chromium.found() is None:
        sys.exit(f"no browser: none of {', '.join(chromium.NAMES)} is on the PATH")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory() as at,
        EmbeddedNats(Path(at) / "nats") as nats,
        EmbeddedPostgres(Path(at) / "postgres") as postgres,
    ):
        servers = {"VIGIL_NATS_URL": nats.url, "VIGIL_POSTGRES_DSN": postgres.dsn}
        command = Vigil(Path(at), **servers)
        with command.running("node", "--app", "tests.web.world:app", "--node-name", "shop-1"):
            happen(command)
            with serving(command) as served:
                asyncio.run(take(served, folder))
        empty = Vigil(Path(at), **servers, VIGIL_STACK="empty")
        with empty.running("project"), serving(empty) as served:
            asyncio.run(take_troubles(served, folder, nats, postgres))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/screenshots"))
