"""Apps as users write them, for the kit to run."""

from __future__ import annotations

from tests.engine.stage import HAPPENED, Scripted
from vigil import (
    Actor,
    App,
    ConvergeResult,
    approval,
    event,
    every,
    propose_output,
    raise_finding,
    tool_call,
    wait,
)

KEY = "disk:web-1"


async def called_for_real(args, ctx):
    return "real"


async def delivered_for_real(output):
    return "real"


class Proposing(Scripted):
    """Does its plan, and proposes a page."""

    def converge(self, state, ctx):
        result = super().converge(state, ctx)
        page = propose_output("pager", {"seen": state.seen})
        return ConvergeResult(
            classification=result.classification, findings=result.findings, outputs=[page]
        )


def app_with(strategy, **expectation) -> App:
    """Return an app with a tool `disk`, an output `pager`, and one expectation `worker.thing`."""
    actor = Actor("worker", tools={"disk": called_for_real})
    actor.expect("thing", strategy, **{"on": event(HAPPENED), "subject_key": "host", **expectation})
    return App(actors=[actor], outputs={"pager": delivered_for_real})


def finds(*plan, ttl_s=None) -> Scripted:
    found = raise_finding(KEY, class_="disk_full", severity="high", ttl_s=ttl_s)
    return Scripted(*plan, findings=[found])


LOOKS = tool_call("disk", "largest", {"host": "web-1"})
ASKS = approval({"delete": "/var/log"}, approvers=["ann"], expires_s=3600)
WAITS = wait("ticket:1")
HOURLY = every("1h")
