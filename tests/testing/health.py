"""Watches services, asks before it restarts one, and tells people: as somebody would write it."""

import httpx

from vigil import (
    Actor,
    App,
    CallFailed,
    Retries,
    clear_finding,
    escalate,
    event,
    every,
    propose_output,
    raise_finding,
    tool,
)
from vigil.adapters import Webhook

URLS = {"shop": "http://127.0.0.1:8080"}
WORSE = [escalate(after="10s", to="high"), escalate(after="30s", to="critical")]


@tool(capability="http", retries=Retries(attempts_max=3, first_s=1), timeout_s=5)
async def fetch(service: str) -> int:
    async with httpx.AsyncClient() as client:
        return (await client.get(URLS[service])).raise_for_status().status_code


@tool(capability="ops", side_effect=True, idempotent=True)
async def restart(service: str, *, ctx) -> str:
    headers = {"Idempotency-Key": ctx.idempotency_key}
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{URLS[service]}/restart", headers=headers)
        return answer.raise_for_status().text


health = Actor("health", tools=[fetch, restart])


@health.expectation(
    on=[event("service.check"), every("1m", payload={"service": "shop"})],
    subject_key="service",
    escalation={"service_down": WORSE},
)
async def service_is_up(ctx, trigger):
    service = trigger.payload["service"]
    try:
        await ctx.call(fetch, service=service)
        return clear_finding(f"service:down:{service}")
    except CallFailed as failed:
        text = f"{service} was down ({failed.error_class})"
    answer = await ctx.approval({"restart": service}, approvers=["ann", "bob"], expires_s=120)
    if answer:
        await ctx.call(restart, service=service)
        text += f"; restarted, approved by {answer.by}"
    down = raise_finding(
        f"service:down:{service}",
        class_="service_down",
        severity="medium",
        ttl_s=60,
        subject=("service", service),
        summary=text,
    )
    return [down, propose_output("hook", {"service": service, "text": text})]


app = App(actors=[health], outputs={"hook": Webhook("http://127.0.0.1:9000/hook")})
