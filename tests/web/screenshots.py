"""Pictures of every screen of the console: `python -m tests.web.screenshots FOLDER`."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import async_playwright

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


async def take(served: Served, folder: Path) -> None:
    """Take a picture of each screen in each shape."""
    path, where = chromium.found(), addresses_of(served.command)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for shape, size, scheme in SHAPES:
            async with chromium.paged(browser, viewport=size, color_scheme=scheme) as page:
                await sign_in(page, served)
                for pattern, address in where.items():
                    name = re.sub(r"[^a-z]+", "-", pattern).strip("-") or "overview"
                    await page.goto(served.address + address)
                    await page.wait_for_timeout(300)
                    await page.screenshot(path=folder / f"{name}-{shape}.png", full_page=True)
        await browser.close()


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
        command = Vigil(Path(at), VIGIL_NATS_URL=nats.url, VIGIL_POSTGRES_DSN=postgres.dsn)
        with command.running("node", "--app", "tests.web.world:app", "--node-name", "shop-1"):
            happen(command)
            with serving(command) as served:
                asyncio.run(take(served, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/screenshots"))
