"""Retries, gather, a sleep and an approval in one function: the example that they were made for."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from vigil.testing import in_turn, run

EXAMPLE = """\
from vigil import Actor, App, Budget, Retries, event, raise_finding, tool

@tool(retries=Retries(attempts_max=5), timeout_s=10)
async def fetch(url: str) -> dict: ...

@tool(side_effect=True, idempotent=True)
async def restart(service: str, *, ctx) -> str: ...          # ctx.idempotency_key

monitor = Actor("service_monitor", tools=[fetch, restart])

@monitor.expectation(on=event("probe.failed"), subject_key="service", budget=Budget(wall_s=900))
async def service_is_up(ctx, trigger):
    service = trigger.payload["service"]
    first, second = await ctx.gather(ctx.call(fetch, url=f"http://{service}/a"), ctx.call(fetch, url=f"http://{service}/b"))
    await ctx.sleep(30)                                        # durable; no node has it meanwhile
    if await ctx.approval({"restart": service}, approvers=["ops"], expires_s=600):
        await ctx.call(restart, service=service)
    return raise_finding(f"service:down:{service}", class_="service_down", severity="high", subject=("service", service), summary="…")

app = App(actors=[monitor])
"""  # noqa: E501 - as people write


@pytest.fixture
def app(monkeypatch):
    module = ModuleType("service_is_up")
    monkeypatch.setitem(sys.modules, "service_is_up", module)
    exec(compile(EXAMPLE, "service_is_up.py", "exec"), vars(module))  # noqa: S102 - it is ours
    return module.app


async def failed_probe(vigil):
    await vigil.publish("probe.failed", {"service": "web"})
    await vigil.advance(minutes=2)


async def test_a_service_that_fails_at_first_is_looked_at_and_restarted(app):
    page = {"status": 503}
    answers = in_turn(TimeoutError(), ConnectionError(), ConnectionError(), page, page)
    given = {"fetch.call": answers, "restart.call": "restarted"}
    async with run(app, tools=given) as vigil:
        await failed_probe(vigil)
        assert vigil.waits()[0].plan == {"restart": "web"}
        assert len(vigil.calls("fetch.call")) == 5
        await vigil.approve(by="ops")
        await vigil.run_until_idle()
        assert [call.args for call in vigil.calls("restart.call")] == [{"service": "web"}]
        finding = vigil.finding("service:down:web")
        assert (finding.class_, finding.severity, finding.summary) == ("service_down", "high", "…")
        assert vigil.episode().status == "done"


async def test_a_service_that_never_answers_is_asked_five_times_on_each_page(app):
    async with run(app, tools={"fetch.call": ConnectionError("down")}) as vigil:
        await failed_probe(vigil)
        episode = vigil.episode()
        assert (episode.status, episode.error_class) == ("failed", "tool_unavailable")
        assert len(vigil.calls("fetch.call")) == 2 * 5
