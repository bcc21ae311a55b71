"""`vigil encrypt` and `erase`: what a stack has of its subjects of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from vigil.commands.call import call
from vigil.options import By, IsJson, IsSure, Reason, require_consent
from vigil.printing import tables
from vigil.printing.output import DRY

if TYPE_CHECKING:
    from vigil.asking.erasure import Erasure
    from vigil.client.client import Client


def encrypt(
    ctx: typer.Context,
    *,
    kinds: Annotated[
        list[str] | None,
        Option("--kind", metavar="PATH", help="A subject key of expectations; may be repeated."),
    ] = None,
    reason: Reason = "",
    by: By = None,
    is_json: IsJson = False,
) -> None:
    """Encrypt what is written about subjects of some kinds, so that it can be erased.

    Without --kind, shows which kinds are encrypted. Start nodes, projectors and consoles again
    afterwards. What was written before stays as it is, and no kind is ever taken back.
    """

    async def asked(client: Client) -> Sequence[str]:
        if not kinds:
            return await client.erasure.kinds()
        return await client.erasure.encrypt(*kinds, reason=reason)

    found = call(ctx, asked, by=by)
    if is_json:
        print(tables.as_json({"kinds": list(found)}))
    elif not found:
        print("nothing is encrypted")
    else:
        print(f"encrypted: what is written about {', '.join(found)}")
        if kinds:
            print("start nodes, projectors and consoles again, so that they encrypt it")


def erase(
    ctx: typer.Context,
    *,
    subject: Annotated[
        str, Option("--subject", metavar="KIND/VALUE", help="Whose data: client_id/123.")
    ],
    is_dry: Annotated[
        bool, Option("--dry-run/--no-dry-run", help="Destroy nothing; only look.")
    ] = False,
    is_sure: IsSure = False,
    reason: Reason = "",
    by: By = None,
    is_json: IsJson = False,
) -> None:
    """Destroy the key of a subject's data: contents are gone, ids and counts stay.

    Who did it, when, why, and how much is gone is noted as an order. What was written before its
    kind was encrypted stays, and is counted. Interrupted, it can be run again.
    """

    async def looked(client: Client) -> Erasure:
        return await client.erasure.erase(subject, dry_run=True)

    async def erased(client: Client) -> Erasure:
        return await client.erasure.erase(subject, reason=reason)

    if not is_dry and not is_sure:
        _print_found(call(ctx, looked, by=by), is_json=False)
        require_consent(f"erase {subject} for good?")
    done = call(ctx, looked if is_dry else erased, by=by)
    _print_found(done, is_json=is_json)
    if is_json:
        return
    if done.is_dry:
        print(DRY)
        return
    what = f"key {done.key_id} is destroyed" if done.key_id else "there was no key any more"
    print(f"{subject}: {what}; {done.rows:,} rows are made anew")
    if done.left:
        print(done.left)


def _print_found(done: Erasure, *, is_json: bool) -> None:
    traces = done.traces
    if is_json:
        fields = {"subject": traces.subject, "erased": traces.counts, "in_the_open": traces.plain}
        more = {"dry_run": done.is_dry, "key_id": done.key_id, "rows": done.rows, "left": done.left}
        stays = {"open": list(traces.open), "held": list(traces.held)}
        print(tables.as_json({**fields, **stays, **more}))
        return
    print(f"{traces.subject}: {_counted(traces.counts) or 'nothing is encrypted'}")
    if traces.plain:
        print(f"written before it was encrypted, and stays: {_counted(traces.plain)}")
    for each in traces.open:
        print(f"has not ended: {each}")
    for each in traces.held:
        print(f"people hold it, so it is not erased: {each}")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())
