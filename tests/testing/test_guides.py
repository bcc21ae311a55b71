"""The apps of the guides and of the demo, run by the kit, and by nodes that die at any moment."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks
from tests.moments import STRIDE
from vigil import App
from vigil.definitions import agent_of, format_of, read, to_actor, to_workflow, workflow_of
from vigil.demo.app import app as demo
from vigil.testing import RunningApp, crash_everywhere, deliver_twice, run


def text_of(page: str, file: str, language: str) -> str:
    """Return `file` of a guide as the page shows it first."""
    shown = (each.text for each in blocks(f"docs/guides/{page}.md", language))
    return next(each for each in shown if each.startswith(f"# {file}\n"))


WRITTEN_BEFORE = {"stacks": ("first-actor", "watch")}
"""Guide → a guide before it and the file of that one, which its own file imports."""


@cache
def app_of(page: str, file: str):
    """Return the app that `file` of a guide declares."""
    if page in WRITTEN_BEFORE:
        app_of(*WRITTEN_BEFORE[page])
    text = text_of(page, f"{file}.py", "python")
    module = sys.modules[file] = ModuleType(file)
    exec(compile(text, file, "exec"), vars(module))  # noqa: S102 - it is ours
    return module.app


@cache
def defined(page: str, file: str, *files: str):
    """Return that app with the actors and workflows that `files` of the page define."""
    parts, actors, workflows = app_of(page, file), [], []
    for each in files:
        data = read(text_of(page, each, "yaml").encode(), format_of(each))
        if "steps" in data:
            workflows.append(to_workflow(workflow_of(data)))
        else:
            actors.append(to_actor(agent_of(data), parts))
    return App(
        actors=actors,
        tools={name: each for name, each in parts.tools.items() if name != "gather"},
        outputs=parts.outputs,
        gatherers=parts.gatherers,
        strategies=parts.strategies,
        workflows=workflows,
    )


@dataclass(frozen=True)
class Guide:
    """An app of a guide, what happens to it there, and how that ends."""

    page: str
    file: str
    scenario: Callable[[RunningApp], Awaitable[None]]
    given: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """Of the page, which define actors and workflows."""
    may_fail: tuple[str, ...] = ()
    """As `crash_everywhere` has it."""

    def __str__(self) -> str:
        return f"{self.page} {self.file}"

    def run(self):
        if self.page == "demo":
            return run(demo, **self.given)
        made = defined(self.page, self.file, *self.files) if self.files else None
        return run(made or app_of(self.page, self.file), **self.given)


async def releases(vigil):
    await vigil.fire("releases", "releases_are_wanted", {"version": "2.7"})
    await vigil.fire("releases", "orders_are_paid", {"order": "o-42"})
    await vigil.run_until_idle()
    await vigil.approve(by="bob")
    await vigil.signal("payment:o-42", {"paid": True})
    await vigil.run_until_idle()
    said = {each.expectation: each.summary for each in vigil.episodes(status="done")}
    assert said == {
        "releases_are_wanted": "2.7: approved by bob",
        "orders_are_paid": "o-42: paid",
    }


async def granted(vigil):
    await vigil.fire("books", "all_counted")
    await vigil.run_until_idle()
    assert vigil.waits()[0].summary == "turns: 2 used of 2; grant 5 more?"
    await vigil.approve(by="ann", plan={"turns": 1})
    await vigil.run_until_idle()
    assert vigil.waits()[0].summary == "turns: 3 used of 3; grant 5 more?"
    await vigil.approve(by="ann", plan={"turns": 1})
    await vigil.run_until_idle()
    assert vigil.episode().summary == "4 tables"


async def orders(vigil):
    await vigil.fire("orders", "orders_are_shipped", {"order": "o-1", "worth": 20})
    await vigil.fire("orders", "orders_are_shipped", {"order": "o-2", "worth": 5_000})
    await vigil.run_until_idle()
    assert [each.payload["order"] for each in vigil.deliveries("warehouse")][:1] == ["o-1"]
    await vigil.approve("ship:o-2")
    await vigil.run_until_idle()
    assert {each.status for each in vigil.outputs()} == {"delivered"}


async def disks(vigil):
    await vigil.publish("disk.measured", {"host": "web-1", "used": 0.97})
    await vigil.advance(minutes=31)
    assert vigil.finding("disk:web-1").severity == "critical"
    assert vigil.finding("silent:web-1", status="expired").caused_by_key == "disk:web-1"


async def checkout(vigil):
    for items in range(3):
        await vigil.publish("cart.changed", {"cart": "c-7", "customer": "ann", "items": items})
    for _ in range(2):
        await vigil.publish("payment.refused", {"cart": "c-7", "customer": "ann"})
    await vigil.advance(minutes=5)
    said = {each.expectation: each.summary for each in vigil.episodes(status="done")}
    assert said == {
        "carts_make_sense": "c-7: the newest of 3",
        "payment_works": "c-7: a payment was refused",
    }


async def logins(vigil):
    for user, times in (("ann", 6), ("bob", 5)):
        for _ in range(times):
            await vigil.publish("login.failed", {"user": user})
    await vigil.advance(minutes=6)
    assert [each.subject_id for each in vigil.findings()] == ["ann"]
    assert {each.summary for each in vigil.episodes(status="done")} == {
        "ann: 6 failed logins within 5 minutes",
        "bob: 5 failed logins within 5 minutes",
    }


async def clients(vigil):
    id_ = await vigil.start_workflow("client_review", {"client": "acme"})
    await vigil.run_until_idle()
    await vigil.approve(id_)
    await vigil.run_until_idle()
    instance = vigil.workflow(id_)
    assert (instance.status, instance.steps["notify"]) == ("done", "done, done")


async def invoices(vigil):
    await vigil.fire("invoices", "customers_pay", {"customer": "ann"})
    await vigil.run_until_idle()
    if vigil.episode().status == "done":
        assert vigil.finding("reminded:ann").severity == "low"


async def shop(vigil):
    for number, order in enumerate(["o-17", "o-17", "o-18"]):
        placed = {"order": {"id": order, "total": 20 if order == "o-18" else 120}}
        await vigil.publish("order.placed", placed, id=f"web-{number}")
    await vigil.run_until_idle()
    assert vigil.episode().summary == "looked at o-17"


async def rollouts(vigil):
    for version, former in [("2.7", "2.6"), ("2.8", "2.7")]:
        given = {"version": version, "former": former}
        await vigil.fire("rollouts", "versions_are_everywhere", given)
        await vigil.run_until_idle()
    said = {each.summary for each in vigil.episodes(status="done")}
    assert said == {"2.7: done at 100%", "2.8: rolled_back at 1%"}


async def services(vigil):
    await vigil.publish("service.checked", {"service": "web"})
    await vigil.run_until_idle()
    assert vigil.episode().summary.startswith("web restarted, by ")


async def watch(vigil):
    await vigil.publish("resource.updated", {"host": "web-1", "disk_used": 0.97})
    await vigil.run_until_idle()
    assert vigil.finding("host:disk:web-1").severity == "high"
    await vigil.publish("resource.updated", {"host": "web-1", "disk_used": 0.5})
    await vigil.run_until_idle()
    assert vigil.findings() == []


async def probes(vigil):
    for service in ("db", "web"):
        await vigil.fire("services", "service_is_up", {"service": service})
    await vigil.advance(minutes=1)
    assert [each.finding_key for each in vigil.findings()] == ["service:down:db"]


async def pages(vigil):
    await vigil.fire("reports", "pages_are_read")
    await vigil.run_until_idle()
    assert vigil.episode().summary == "12 rows"


async def mails(vigil):
    await vigil.fire("mails", "customer_is_told", {"to": "ann"})
    await vigil.run_until_idle()
    await vigil.approve()
    await vigil.run_until_idle()
    assert vigil.episode().step("mail.send").result == "sent"


async def incidents(vigil: RunningApp) -> None:
    id_ = await vigil.fire("triage", "incident", budget={"usd": "0.10"})
    await vigil.run_until_idle()
    assert vigil.episode(id_).summary == "nothing was asked"
    assert vigil.episode(id_).budget.usd == Decimal("0.10")


async def books(vigil):
    await vigil.fire("books", "all_counted", {"tables": ["a", "bb", "ccc", "dddd"]})
    await vigil.run_until_idle()
    assert vigil.episode().summary == "6 rows in the first 3 tables"


async def audits(vigil):
    await vigil.fire("auditor", "audit", {"hosts": ["web-1", "web-22", "db-9"]})
    await vigil.run_until_idle()
    assert vigil.episode(actor="auditor").summary == "2 of 3 hosts measured"


async def overdue(vigil):
    await vigil.publish("order.overdue", {"order": "o-1"})
    await vigil.run_until_idle()
    assert vigil.finding("order:overdue:o-1").severity == "high"


async def two_actors(vigil):
    await vigil.publish("resource.updated", {"host": "web-1", "disk_used": 0.97})
    await vigil.run_until_idle()
    assert {each.actor for each in vigil.episodes(status="done")} == {"clerk", "everywhere"}
    assert vigil.finding("host:disk:web-1").severity == "high"


async def rooms(vigil):
    await vigil.publish("resource.updated", {"host": "web-9", "disk_used": 0.97})
    await vigil.run_until_idle()
    assert vigil.finding("room:web-9").severity == "critical"


async def ledger(vigil):
    rows = [{"amount": amount} for amount in (1, 2, -3, 4, 5)]
    await vigil.fire("books", "rows_are_booked", {"rows": rows})
    await vigil.run_until_idle()
    (episode,) = vigil.episodes()
    assert episode.summary == "8 booked; group 1: below_zero"
    (mailed,) = vigil.deliveries("mail")
    assert mailed.payload["sum"] == 8


async def restarts(vigil):
    await vigil.publish("host.probed", {"host": "web-1", "answers": False})
    await vigil.run_until_idle()
    await vigil.approve(by="ann")
    await vigil.run_until_idle()
    assert vigil.finding("host:down:web-1").severity == "high"
    restarted = {each.summary for each in vigil.episodes(expectation="host_is_restarted")}
    assert restarted == {"web-1 is restarted"}


async def volumes(vigil):
    await vigil.publish("volume.measured", {"volume": "db-3", "used": 0.97, "day": "monday"})
    await vigil.run_until_idle()
    await vigil.approve("grow:db-3:monday", by="ann")
    await vigil.run_until_idle()
    assert vigil.finding("volume:db-3").summary == "db-3: 0.97 used"
    assert {each.status for each in vigil.outputs()} == {"delivered"}


async def vendors(vigil):
    await vigil.publish("vendor.added", {"vendor": "acme", "systems": ["erp", "mail"]})
    await vigil.publish("vendor.added", {"vendor": "shady", "systems": ["erp"]})
    await vigil.advance(minutes=1)
    await vigil.approve(by="ada")
    await vigil.advance(minutes=1)
    said = {each.summary for each in vigil.episodes(actor="connectors", status="done")}
    assert said == {"erp-acme is set up", "mail-acme is set up", "erp-shady is set up"}


async def watching(vigil):
    measured = {"host": "web-1", "mount": "/", "used_fraction": 0.97}
    await vigil.publish("host.disk.measured", measured)
    await vigil.run_until_idle()
    assert vigil.finding("disk:web-1:/").severity == "critical"
    advice = vigil.finding("advice:disk:web-1:/")
    assert (advice.summary, advice.caused_by_key) == ("Empty /var/log.", "disk:web-1:/")

    await vigil.publish("host.disk.measured", {**measured, "used_fraction": 0.01})
    await vigil.run_until_idle()
    assert vigil.findings() == []


ADVICE = {
    "tools": {"directories.largest": {"largest": [{"name": "/var/log"}], "complete": True}},
    "synthesizer": "Empty /var/log.",
}

NOT_HERE = {
    "agents": "its test is run with the page, and has a node die at every moment, too",
    "lab": "it is about what has happened before",
    "retention": "its app says how long things are kept, and does nothing",
    "testing": "its tests are run with the page, and have a node die at every moment, too",
}
"""Page with an app → why it is not among `GUIDES`."""

GUIDES = [
    Guide("first-actor", "watch", watch),
    Guide("functions", "services", probes, {"allow": ["service.*"]}),
    Guide("functions", "pages", pages, {"allow": ["page.*"]}),
    Guide("functions", "changed", mails, {"allow": ["mail.*"]}),
    Guide("children", "audits", audits, may_fail=("unreachable",)),
    Guide("functions", "partial", books, {"allow": ["count_rows.*"]}),
    Guide("functions", "granting", granted),
    Guide("approvals", "releases", releases),
    Guide("check-raise-ask-act", "restarts", restarts, {"allow": ["restart.call"]}),
    Guide("outputs", "orders", orders),
    Guide("batches", "ledger", ledger, {"allow": ["book.call"]}),
    Guide("findings", "disks", disks),
    Guide("costs", "spending", incidents),
    Guide("limits", "checkout", checkout),
    Guide("limits", "logins", logins),
    Guide("workflows", "clients", clients, {"tools": {"look_up.call": {"client": "acme"}}}),
    Guide("by-hand", "invoices", invoices, {"tools": {"mail.send": {"id": "m-1"}}}),
    Guide("triggers", "shop", shop),
    Guide("strategies", "rollouts", rollouts, {"allow": ["deploy.call", "error_rate.call"]}),
    Guide("tools", "services", services, {"allow": ["measure.call", "restart.call"]}),
    Guide("deploying", "shop", overdue),
    Guide("stacks", "shop", two_actors, {"stack": "orders"}),
    Guide("definitions", "parts", rooms, {"allow": ["gather.*"]}, ("disks.yaml",)),
    Guide("templates", "volumes", volumes, {"allow": ["gather.*"]}, ("volumes.yaml",)),
    Guide(
        "vendor-onboarding",
        "vendors",
        vendors,
        {"allow": ["gather.*", "connect.call"]},
        ("compliance.yaml", "connectors.yaml", "onboarding.yaml"),
        ("connection_refused",),
    ),
    Guide("demo", "watching", watching, ADVICE),
]


def test_the_apps_of_every_guide_are_run():
    pages = {each.stem for each in (ROOT / "docs/guides").glob("*.md")}
    have = {
        page
        for page in pages
        if any("\napp = App(" in each.text for each in blocks(f"docs/guides/{page}.md", "python"))
    }
    assert have - {guide.page for guide in GUIDES} == set(NOT_HERE)


@pytest.mark.parametrize("guide", GUIDES, ids=str)
async def test_an_app_of_a_guide_does_what_the_guide_says(guide):
    async with guide.run() as vigil:
        await guide.scenario(vigil)


@pytest.mark.parametrize("guide", GUIDES, ids=str)
async def test_it_ends_the_same_whenever_a_node_dies(guide):
    moments = await crash_everywhere(
        guide.run, guide.scenario, every=STRIDE, may_be_unknown=True, may_fail=guide.may_fail
    )
    assert moments > 1


@pytest.mark.parametrize("guide", GUIDES, ids=str)
async def test_it_ends_the_same_if_messages_come_twice(guide):
    await deliver_twice(guide.run, guide.scenario)
