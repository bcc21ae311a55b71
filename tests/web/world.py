"""A shop whose actors show everything that the console has a screen for."""

from __future__ import annotations

import asyncio
from typing import Final

from pydantic_ai import Agent

from vigil import (
    Actor,
    App,
    Breaker,
    Budget,
    CallContext,
    CallFailed,
    ConvergeResult,
    DeliveryFailed,
    Retries,
    Route,
    Workflow,
    clear_finding,
    cron,
    event,
    every,
    manual,
    propose_output,
    raise_finding,
    tool,
    workflow,
)
from vigil.agents import toolset


@tool
async def read_metric(host: str) -> dict[str, object]:
    """Read how full the disk of a host is."""
    return {"host": host, "disk_used": 0.97, "largest": "/var/log/checkout.log"}


@tool
async def read_price(sku: str) -> int:
    """Read the price of a thing, in cents."""
    return len(sku) * 100


@tool(side_effect=True, idempotent=True)
async def restart(ctx: CallContext, service: str) -> str:
    """Restart a service."""
    return f"{service} is up again"


@tool
async def stock(sku: str) -> int:
    """Count what is in stock, in a warehouse that answers to nobody."""
    raise CallFailed("warehouse_away", f"the warehouse did not answer about {sku}")


@tool
async def copy_all(volume: str) -> str:
    """Copy a volume, which takes longer than anybody waits."""
    await asyncio.sleep(3_600)
    return volume


triage = Agent(
    "test",
    name="triage",
    instructions="Find out why the host is slow. Restart a service only if nothing else helps.",
    toolsets=[toolset(read_metric, restart, requires_approval=[restart])],
)

hosts = Actor("hosts", tools=[read_metric, restart], description="Watches the machines of the shop")
prices = Actor(
    "prices", tools=[read_price, stock], description="Holds prices and stock to their rules"
)
releases = Actor("releases", description="Puts versions into production, once people agree")
billing = Actor("billing", tools=[read_price])

stores = Actor("stores", description="Knows what customers see of the shop")
backups = Actor("backups", tools=[copy_all], max_concurrent_cluster=1)
archive = Actor("archive", description="Puts old orders away; somebody has paused it")


@hosts.expectation(on=event("disk.measured"), subject_key="host")
async def disk_has_room(ctx, trigger):
    host, used = trigger.payload["host"], trigger.payload["used"]
    key = f"host:disk:{host}"
    if used <= 0.9:
        return clear_finding(key, reason=f"{host}: disk {used:.0%} used")
    known = await ctx.call(read_metric, host=host)
    severity = "critical" if used > 0.98 else "high" if used > 0.95 else "medium"
    return raise_finding(
        key,
        class_="disk_full",
        severity=severity,
        subject=("host", host),
        summary=f"{host}: disk {used:.0%} used, most of it {known['largest']}",
        evidence=known,
    )


@hosts.expectation(
    on=event("host.slow"), subject_key="host", budget=Budget(turns=50, tokens=200_000)
)
async def host_is_fast(ctx, trigger):
    host = trigger.payload["host"]
    found = await ctx.agent(triage, f"The host {host} is slow.")
    return raise_finding(
        f"host:slow:{host}",
        class_="slow",
        severity="low",
        subject=("host", host),
        summary=f"{host} is slow: {found.output}"[:200],
        caused_by=f"host:disk:{host}",
    )


@prices.expectation(on=event("price.changed"), subject_key="sku")
async def price_is_plausible(ctx, trigger):
    sku = trigger.payload["sku"]
    known = await ctx.call(read_price, sku=sku)
    return ConvergeResult(summary=f"{sku} costs {known / 100:.2f}", confidence=0.9)


@prices.expectation(on=event("stock.counted"), subject_key="sku")
async def stock_is_known(ctx, trigger):
    await ctx.call(stock, sku=trigger.payload["sku"])
    return ConvergeResult(summary="counted")


@prices.expectation(on=every("30m"))
async def prices_are_complete(ctx, trigger):
    return ConvergeResult(summary="all prices are there")


@releases.expectation(on=manual(), subject_key="version")
async def release_is_wanted(ctx, trigger):
    version = trigger.payload["version"]
    answer = await ctx.approval(
        {"deploy": version, "to": "production", "hosts": ["web-1", "web-2"]},
        summary=f"put {version} into production",
        expires_s=86_400,
        editable=True,
    )
    if not answer:
        return ConvergeResult(summary=f"{version}: not approved ({answer.reason})")
    return ConvergeResult(summary=f"{version}: approved by {answer.by}")


@releases.expectation(on=manual(), subject_key="version")
async def release_is_agreed(ctx, trigger):
    version = trigger.payload["version"]
    answer = await ctx.approval(
        {"deploy": version},
        summary=f"agree on {version}",
        quorum=2,
        requester_may_approve=False,
        editable=True,
    )
    return ConvergeResult(summary=f"{version}: {answer.status}")


@releases.expectation(on=event("order.paid"))
async def payment_comes(ctx, trigger):
    await ctx.wait(f"payment:{trigger.payload['order']}", expires_s=86_400)
    return ConvergeResult(summary="paid")


@releases.expectation(on=event("fleet.checked"), subject_key="fleet")
async def fleet_is_well(ctx, trigger):
    for sku in ("tea", "milk"):
        await ctx.episode("billing", "charge_card", {"client": sku}, key=f"{sku}")
    return ConvergeResult(summary="both are well")


@billing.expectation(on=[workflow(), manual()])
async def screen_client(ctx, trigger):
    return ConvergeResult(summary="known since 2019", result={"client": trigger.payload["client"]})


@billing.expectation(on=[workflow(), manual()])
async def charge_card(ctx, trigger):
    paid = await ctx.call(read_price, sku=str(trigger.payload["client"]))
    return ConvergeResult(summary=f"charged {paid} cents", result={"cents": paid})


@billing.expectation(on=workflow())
async def send_receipt(ctx, trigger):
    return ConvergeResult(
        summary="receipt is on its way",
        outputs=[
            propose_output(
                "mail",
                {"to": "ann@example.org", "about": "your receipt"},
                dedupe_key=f"receipt:{trigger.payload['client']}",
                requires_approval=trigger.payload["client"] == "umbrella",
                summary=f"receipt for {trigger.payload['client']}",
            )
        ],
    )


@stores.expectation(on=event("site.measured"), subject_key="site")
async def site_is_fast(ctx, trigger):
    site = trigger.payload["site"]
    return raise_finding(
        f"site:slow:{site}",
        class_="slow",
        severity="high",
        subject=("site", site),
        summary=f"{site} answers in {trigger.payload['ms']:,} ms",
        caused_by="host:disk:web-1",
        confidence=0.8,
    )


@stores.expectation(on=event("sales.fell"), subject_key="site")
async def sales_are_steady(ctx, trigger):
    site = trigger.payload["site"]
    return raise_finding(
        f"site:sales:{site}",
        class_="sales",
        severity="medium",
        subject=("site", site),
        summary=f"{site} sells less than yesterday",
        caused_by=f"site:slow:{site}",
    )


@stores.expectation(
    on=event("price.seen", filter={"currency": "EUR"}), subject_key="sku", cooldown_s=3_600
)
async def price_is_shown(ctx, trigger):
    return ConvergeResult(summary=f"{trigger.payload['sku']} is shown right")


@stores.expectation(on=event("mail.wanted"), subject_key="to", breaker=Breaker(threshold=3))
async def customer_knows(ctx, trigger):
    to = trigger.payload["to"]
    return ConvergeResult(
        summary=f"{to} gets a mail",
        outputs=[
            propose_output(
                trigger.payload.get("adapter", "mail"),
                {"to": to, "about": trigger.payload.get("about", "your order")},
                dedupe_key=f"mail:{to}",
                summary=f"mail to {to}",
            )
        ],
    )


@backups.expectation(
    on=event("volume.aged"), subject_key="volume", budget=Budget(wall_s=3_600), priority=1
)
async def volume_is_safe(ctx, trigger):
    await ctx.call(copy_all, volume=trigger.payload["volume"])
    return ConvergeResult(summary="copied")


@archive.expectation(on=[event("order.old"), every("1h"), cron("15 3 * * *", tz="Europe/Berlin")])
async def orders_are_away(ctx, trigger):
    return ConvergeResult(summary="put away")


@billing.expectation(on=workflow())
async def item_is_packed(ctx, trigger):
    if trigger.payload["item"] == "vase":
        raise CallFailed("broken", "the vase is broken")
    return ConvergeResult(summary="packed", result=trigger.payload)


parcel = Workflow("parcel", on=event("parcel.wanted"), subject_key="client", budget_usd=2)
parcel.step("look", "billing", "screen_client", input=lambda trigger, prior: trigger.payload)
parcel.step(
    "pack",
    "billing",
    "item_is_packed",
    depends_on=["look"],
    on_failure="pause",
    for_each=lambda trigger, prior: [{"item": each} for each in trigger.payload["items"]],
)
parcel.step(
    "post",
    "billing",
    "screen_client",
    depends_on=["pack"],
    input=lambda trigger, prior: trigger.payload,
)


order = Workflow("order_to_cash", on=event("order.placed"), subject_key="client")
order.step("screen", "billing", "screen_client", input=lambda trigger, prior: trigger.payload)
order.step(
    "charge",
    "billing",
    "charge_card",
    depends_on=["screen"],
    requires_approval=True,
    input=lambda trigger, prior: trigger.payload,
)
order.step(
    "stock",
    "billing",
    "screen_client",
    depends_on=["screen"],
    input=lambda trigger, prior: trigger.payload,
)
order.step(
    "receipt",
    "billing",
    "send_receipt",
    depends_on=["charge", "stock"],
    input=lambda trigger, prior: trigger.payload,
)


async def mail(sent):
    return f"mail-{sent.output_key[-4:]}"


async def fax(sent):
    if sent.attempt > 1 and sent.payload["to"].startswith("later@"):
        return "the line is back"
    raise DeliveryFailed("no_line", f"nobody answers the fax of {sent.output_key}", permanent=True)


app = App(
    actors=[hosts, prices, releases, billing, stores, backups, archive],
    workflows=[order, parcel],
    outputs={"mail": Route(mail, retries=Retries(attempts_max=3)), "fax": Route(fax)},
    strategies={"shop:look": price_is_shown},
)


LONG: Final = "a-host-with-a-long-name.rack-17.datacenter-2.europe-west.example.org"
HTML: Final = "<img src=x onerror=alert(1)>"

HAPPENED: Final = (
    *(
        ("disk.measured", {"host": host, "used": used})
        for host, used in (("web-1", 0.97), ("web-2", 0.99), ("db-1", 0.93), (HTML, 0.95))
    ),
    *(("price.changed", {"sku": f"sku-{number}"}) for number in range(12)),
    *(("stock.counted", {"sku": f"sku-{number}"}) for number in range(5)),
    ("host.slow", {"host": "web-1"}),
    ("host.slow", {"host": LONG}),
    ("order.paid", {"order": "o-42"}),
    ("fleet.checked", {"fleet": "north"}),
    ("order.placed", {"client": "initech"}),
    ("order.placed", {"client": "umbrella"}),
    ("site.measured", {"site": "checkout", "ms": 4_200}),
    ("sales.fell", {"site": "checkout"}),
    ("price.seen", {"sku": "tea", "currency": "USD"}),
    ("price.seen", {"sku": HTML, "currency": HTML}),
    ("price.seen", {"sku": "milk", "currency": "EUR"}),
    ("price.seen", {"sku": "milk", "currency": "EUR", "again": True}),
    ("mail.wanted", {"to": "ann@example.org"}),
    ("mail.wanted", {"to": HTML, "about": HTML, "adapter": "fax"}),
    ("volume.aged", {"volume": "orders"}),
    ("volume.aged", {"volume": "pictures"}),
    ("order.old", {"order": "o-1"}),
    ("parcel.wanted", {"client": "hooli", "items": ["cup", "vase", "plate"]}),
    ("nobody.listens", {"to": "this"}),
)
"""What happens in the shop: the name of an event, and its payload."""

FIRED: Final = tuple(
    ("releases", "release_is_wanted", {"version": version}, f"r-{version}")
    for version in ("2.7", "2.8")
)
"""What people fire there: actor, expectation, payload, key."""

PAUSED: Final = "archive"
"""The actor that somebody has paused before anything happens."""


def watch(limit: float, *, about: str = "") -> dict[str, object]:
    """Return the definition of an actor that is applied as data."""
    return {
        "id": "watch",
        "description": f"Looks at prices, up to {limit}. {about}",
        "expectations": {
            "looks": {
                "on": {"event": "price.seen", "filter": {"price": {"gt": limit}}},
                "strategy": {"ref": "shop:look"},
            }
        },
    }


DEFINED: Final = ((watch(10.0), "prices rise"), (watch(12.5, about=HTML), HTML))
"""What is applied there, one after the other, and why."""

UNSETTLED: Final = """
    select 1
    where (select count(*) from inbox) < 9
        or exists (
            select from episodes where status in ('queued', 'running') and actor_id <> 'backups'
        )
        or (select count(*) from episodes where actor_id = 'backups' and status = 'queued') < 1
        or (select count(*) from refusals) < 3
        or (select count(*) from outputs where status in ('delivered', 'failed')) < 2
        or (select count(*) from findings where actor_id = 'stores') < 2
        or (select count(*) from episodes where expectation_id = 'price_is_plausible') < 12
        or (select count(*) from episodes where status = 'failed') < 5
"""
"""A question to the rows that has no answer once all has come to what it comes to."""
