"""What the guide to deploys writes down before one: the journal of each open episode."""

from __future__ import annotations

import sys
from types import ModuleType

from msgspec.structs import replace

from streams import jetstream
from streams.subjects import Stack
from tests.client.happened import happened
from tests.docs.pages import blocks
from tests.projections import lives

OPEN = 52
"""More than a page of a list has."""


def kept_in(folder):
    return {each.stem for each in folder.glob("open_refunds/*.jsonl")}


async def test_every_open_episode_is_kept_however_many_and_whatever_it_does(
    nats, postgres, pool, tmp_path, monkeypatch
):
    app = ModuleType("refunds")
    app.app = None
    monkeypatch.setitem(sys.modules, "refunds", app)
    monkeypatch.setenv("VIGIL_NATS_URL", nats.url)
    monkeypatch.setenv("VIGIL_POSTGRES_DSN", postgres.dsn)
    monkeypatch.chdir(tmp_path)
    (program,) = (
        each.text
        for each in blocks("docs/guides/deploying.md", "python")
        if each.text.startswith("# check_refunds.py")
    )
    names = {"__name__": "check_refunds"}
    exec(compile(program, "check_refunds.py", "exec"), names)  # noqa: S102 - as a reader writes it

    async with jetstream.connect(nats.url, stack=Stack()) as ports, lives.projecting(ports, pool):
        for number in range(1, OPEN + 2):
            queued = replace(lives.opened(number), actor_id="refunds")
            more = [lives.started()] if number % 2 else []
            more += [lives.finished()] if number > OPEN else []
            await happened(ports, ports.stack.episode(lives.episode_id(number)), queued, *more)
        await lives.wait_projected(ports, pool)
        await names["keep"](nats.url)

    assert kept_in(tmp_path) == {lives.episode_id(number) for number in range(1, OPEN + 1)}
