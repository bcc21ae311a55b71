"""From a webhook to an episode: an alert that is sent again and again opens one."""

from __future__ import annotations

import asyncio

import httpx

from tests.vigil.program import Vigil
from tests.web.api.conftest import api_on
from tests.web.api.served import serving
from tests.web.webhooks import sent
from vigil.client import Client
from vigil.web.webhooks.file import read_webhooks

SECRET = "It's a Secret to Everybody"

APP = """
from vigil import Actor, App, event

oncall = Actor("oncall")

@oncall.expectation(
    on=event("alert.firing", filter={"labels.severity": "critical"}),
    subject_key="labels.instance",
)
async def somebody_looks(ctx, trigger): ...

app = App(actors=[oncall])
"""

LOOKS_MAX = 600

EVENT_ID = "alertmanager/1a30ba71cca2921f/2026-11-29T09:08:45.828Z/firing"


async def test_an_alert_opens_one_episode_however_often_it_is_sent(
    nats, stack, tmp_path, monkeypatch
):
    monkeypatch.setenv("ALERTS", SECRET)
    (tmp_path / "alerting.py").write_text(APP)
    (tmp_path / "webhooks.toml").write_text(
        '[webhooks.alertmanager]\nsource = "alertmanager"\nsecret = "env:ALERTS"\n'
    )
    command = Vigil(tmp_path, VIGIL_NATS_URL=nats.url, VIGIL_STACK=stack.name)
    webhooks = read_webhooks(tmp_path / "webhooks.toml")
    with command.running("node", "--app", "alerting:app", "--no-project"):
        async with (
            Client(nats_url=nats.url, stack=stack.name, by="console") as client,
            serving(api_on(client, webhooks)) as url,
            httpx.AsyncClient(timeout=30) as sender,
        ):
            await client.nodes.wait_ready("oncall")
            for _ in range(3):
                answer = await sender.post(
                    f"{url}/events/alertmanager",
                    json=sent.ALERTMANAGER,
                    headers={"authorization": f"Bearer {SECRET}"},
                )
                assert answer.status_code == 200, answer.text
            for _ in range(LOOKS_MAX):
                verdicts = (await client.events.why(EVENT_ID)).verdicts
                if any(each.episode_id for each in verdicts):
                    break
                await asyncio.sleep(0.05)
            (verdict,) = verdicts
            (opened, *_) = await client.episodes.replay(verdict.episode_id)
    assert (verdict.actor, verdict.expectation) == ("oncall", "somebody_looks")
    assert opened.event.trigger.entity_id == "https://pay.example"
