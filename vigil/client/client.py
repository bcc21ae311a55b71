"""`Client`: a stack, for programs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from projections.errors import PostgresUnavailable
from streams.clock import Clock, SystemClock
from streams.json import JsonObject
from vigil import settings
from vigil.client.connections import Connections, of_config, of_ports
from vigil.errors import Mistake
from vigil.settings import Config

if TYPE_CHECKING:
    from engine.app.actor import Logging
    from projections.postgres.pool import Pool
    from projections.postgres.query_result import Table
    from projections.postgres.reader import OneOrMore
    from projections.records import CostBy, InboxItem
    from streams.model.triggers import Overrides
    from streams.ports.all import Ports
    from streams.subjects import Stack
    from vigil.client.actors import ActorCalls
    from vigil.client.approvals import ApprovalCalls
    from vigil.client.dead_letters import DeadLetterCalls
    from vigil.client.episodes import EpisodeCalls, EpisodeReceipt
    from vigil.client.events import EventCalls, PublishReceipt
    from vigil.client.findings import FindingCalls
    from vigil.client.outputs import OutputCalls
    from vigil.client.page import Page
    from vigil.client.signals import SignalCalls
    from vigil.client.stack.costs import CostReport
    from vigil.client.stack.definitions import DefinitionCalls
    from vigil.client.stack.erasure import ErasureCalls
    from vigil.client.stack.nodes import NodeCalls
    from vigil.client.stack.orders import OrderCalls
    from vigil.client.stack.people import PeopleCalls
    from vigil.client.stack.projections import ProjectionCalls
    from vigil.client.stack.repairs import RepairCalls
    from vigil.client.stack.retention import RetentionCalls
    from vigil.client.stack.tokens import TokenCalls
    from vigil.client.workflows import WorkflowCalls

_CLOCK: Final = SystemClock()


class Client:
    """What the `vigil` command does, as calls of one stack. Use it with `async with`.

        async with Client(stack="shop", by="ann") as client:
            await client.publish("probe.failed", {"service": "pay"})
            for each in (await client.findings.list()).items:
                print(each.finding_key, each.summary)

    A setting that is not given is looked for where the commands look: `VIGIL_*` in the environment,
    then `vigil.toml`. A connection is made by the first call that needs it and stays open: who
    only publishes needs no Postgres, who only reads needs no NATS. Tasks of one event loop may
    share a client.

    Every error of a call is a `VigilError`, whose `remedy` says what to do; only a value of a wrong
    type may raise a `TypeError` or an `AttributeError` of Python's own.
    """

    def __init__(
        self,
        *,
        nats_url: str | None = None,
        nats_creds: str | None = None,
        nats_inbox: str | None = None,
        nats_domain: str | None = None,
        postgres_dsn: str | None = None,
        stack: str | None = None,
        env: str | None = None,
        by: str | None = None,
        create_stack: bool = False,
    ) -> None:
        """Read the settings; nothing is connected yet.

        Args:
            by: who gives the orders that calls name nobody for; by default the user name.
            create_stack: whether the first call makes the stack if there is none, as a node does;
                otherwise it raises `StackNotFound`, since the name may be misspelt.

        Raises:
            Mistake: a setting cannot work; the error names it.
        """
        given = {
            "nats_url": nats_url,
            "nats_creds": nats_creds,
            "nats_inbox": nats_inbox,
            "nats_domain": nats_domain,
            "postgres_dsn": postgres_dsn,
            "stack": stack,
            "env": env,
        }
        config = settings.read(given, given_as="argument")
        _require_address(config.settings.postgres_dsn)
        name = settings.user(config) if by is None else by
        self.connections = of_config(config, by=name, clock=_CLOCK, creates_stack=create_stack)

    @classmethod
    def of(cls, config: Config, *, by: str | None = None, create_stack: bool = False) -> Client:
        """Return a client with these settings."""
        name = settings.user(config) if by is None else by
        return cls._on(of_config(config, by=name, clock=_CLOCK, creates_stack=create_stack))

    @classmethod
    def on(
        cls, ports: Ports, pool: Pool | None = None, *, by: str, clock: Clock = _CLOCK
    ) -> Client:
        """Return a client on connections that somebody else opens and closes.

        `ports` may be in memory; without `pool`, calls that ask the rows raise `Trouble`.
        """
        return cls._on(of_ports(ports, pool, by=by, clock=clock))

    @classmethod
    def _on(cls, connections: Connections) -> Client:
        client = cls.__new__(cls)
        client.connections = connections
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, for good: a later call is a `Mistake`."""
        await self.connections.close()

    @property
    def stack(self) -> Stack:
        """The stack, as its settings name it."""
        return self.connections.stack

    async def publish(
        self, name: str, payload: JsonObject | bytes, *, id: str | None = None
    ) -> PublishReceipt:
        """Publish a domain event, as `client.events.publish` does."""
        return await self.events.publish(name, payload, id=id)

    async def signal(
        self, ref: str, result: object = None, *, by: str | None = None, id: str | None = None
    ) -> PublishReceipt:
        """Send the result of `ref` to all that wait for it, as `client.signals.send` does."""
        return await self.signals.send(ref, result, by=by, id=id)

    async def fire(
        self,
        actor: str,
        expectation: str,
        payload: JsonObject | None = None,
        *,
        reason: str = "",
        by: str | None = None,
        key: str | None = None,
        priority: int = 0,
        at: datetime | None = None,
        dry_run: bool = False,
        overrides: Overrides | None = None,
        metadata: JsonObject | None = None,
        budget: Mapping[str, int | float | str] | None = None,
        revision: int = 0,
        log_strategy: Logging | None = None,
        attempts_max: int = 0,
    ) -> EpisodeReceipt:
        """Open an episode by hand, now or later, as `client.episodes.fire` does."""
        return await self.episodes.fire(
            actor,
            expectation,
            payload,
            reason=reason,
            by=by,
            key=key,
            priority=priority,
            at=at,
            dry_run=dry_run,
            overrides=overrides,
            metadata=metadata,
            budget=budget,
            revision=revision,
            log_strategy=log_strategy,
            attempts_max=attempts_max,
        )

    async def inbox(
        self,
        *,
        kind: OneOrMore | None = None,
        actor: OneOrMore | None = None,
        at: datetime | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[InboxItem]:
        """Return what waits for a person, and the command to type: the oldest first.

        Args:
            kind: `approval`, `output`, `wait`, `workflow_step`, `nondeterministic_replay` or
                `dead_letter`, or several of them; None: any.
            actor: one, or several.
            at: what waited then; None: what waits. The command to type and `journal_seq` are as of
                now, but for outputs; so is what an output says that was proposed anew since. What
                has been asked anew since is missing where rows keep only the newest: an output
                whose request was canceled, a step of a workflow, a dead letter.
            after: the `next` of a page: only what follows it.
            reverse: from the other end of the list: the latest comes first.

        Raises:
            Mistake: there is no such `kind`, `after` is no such `next`, or `at` has no time zone or
                is yet to come.
        """
        from vigil.client.page import INBOX, INBOX_AT, INBOX_KINDS, check_past, checked_one_of

        kind = checked_one_of("kind", kind, INBOX_KINDS)
        check_past(at, self.connections.clock.now())
        if at is not None:
            return await INBOX_AT.page(
                self.connections,
                after=after,
                limit=limit,
                at=at,
                kind=kind,
                actor=actor,
                reverse=reverse,
            )
        return await INBOX.page(
            self.connections, after=after, limit=limit, kind=kind, actor=actor, reverse=reverse
        )

    async def count_inbox(
        self, *, actor: OneOrMore | None = None, at: datetime | None = None
    ) -> Mapping[str, int]:
        """Return kind → how much of it waits for a person; with `at`, how much waited then.

        Raises:
            Mistake: `at` has no time zone or is yet to come.
        """
        from projections.postgres.reader import count_inbox, count_inbox_at
        from vigil.client.page import check_past

        check_past(at, self.connections.clock.now())
        async with self.connections.rows() as pool:
            if at is not None:
                return await count_inbox_at(pool, self.stack, at=at, actor=actor)
            return await count_inbox(pool, self.stack, actor=actor)

    async def costs(
        self,
        *,
        by: CostBy = "actor",
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
    ) -> CostReport:
        """Return what requests to models have cost, the dearest first; days with the latest first.

        Args:
            by: `actor`, `model`, `agent`, `day`, `finding`, or `all` for one sum. An episode with
                several findings counts for each of them.
            since: only requests recorded then or later, with a time zone; None: all.
            until: only those recorded before, with a time zone; None: all.

        Raises:
            Mistake: there is no such `by`, or a time has no time zone.
        """
        from vigil.client.stack.costs import report

        return await report(self.connections, by=by, since=since, until=until, limit=limit)

    async def sql(self, text: str) -> Table:
        """Return the answer to one SQL statement that only reads, up to 10,000 rows.

        Raises:
            Mistake: it is wrong, writes, has no statement or several, or takes over 30 s.
        """
        from projections.postgres.reader import run_sql

        async with self.connections.rows() as pool:
            return await run_sql(pool, text)

    # Each is imported when it is first used, so that what publishes loads no engine.

    @cached_property
    def actors(self) -> ActorCalls:
        """Actors: `vigil actors`."""
        from vigil.client.actors import ActorCalls

        return ActorCalls(self.connections)

    @cached_property
    def approvals(self) -> ApprovalCalls:
        """What waits for approval: `approve` and `deny` of the commands."""
        from vigil.client.approvals import ApprovalCalls

        return ApprovalCalls(self.connections)

    @cached_property
    def dead_letters(self) -> DeadLetterCalls:
        """Dead letters: `vigil dead`."""
        from vigil.client.dead_letters import DeadLetterCalls

        return DeadLetterCalls(self.connections)

    @cached_property
    def definitions(self) -> DefinitionCalls:
        """Definitions of actors and workflows: `vigil apply`, and `disable` and `history`."""
        from vigil.client.stack.definitions import DefinitionCalls

        return DefinitionCalls(self.connections)

    @cached_property
    def episodes(self) -> EpisodeCalls:
        """Episodes: `vigil episodes`, `vigil fire`."""
        from vigil.client.episodes import EpisodeCalls

        return EpisodeCalls(self.connections)

    @cached_property
    def events(self) -> EventCalls:
        """Domain events: `vigil publish`, `vigil events why`."""
        from vigil.client.events import EventCalls

        return EventCalls(self.connections)

    @cached_property
    def findings(self) -> FindingCalls:
        """Findings: `vigil findings`."""
        from vigil.client.findings import FindingCalls

        return FindingCalls(self.connections)

    @cached_property
    def nodes(self) -> NodeCalls:
        """Nodes and their modes: `vigil mode`."""
        from vigil.client.stack.nodes import NodeCalls

        return NodeCalls(self.connections)

    @cached_property
    def erasure(self) -> ErasureCalls:
        """Encrypting data of subjects, and erasing them."""
        from vigil.client.stack.erasure import ErasureCalls

        return ErasureCalls(self.connections)

    @cached_property
    def orders(self) -> OrderCalls:
        """What people have ordered: `vigil orders`."""
        from vigil.client.stack.orders import OrderCalls

        return OrderCalls(self.connections)

    @cached_property
    def outputs(self) -> OutputCalls:
        """Outputs: `vigil outputs`."""
        from vigil.client.outputs import OutputCalls

        return OutputCalls(self.connections)

    @cached_property
    def people(self) -> PeopleCalls:
        """People, and signing in: `vigil users`."""
        from vigil.client.stack.people import PeopleCalls

        return PeopleCalls(self.connections)

    @cached_property
    def projections(self) -> ProjectionCalls:
        """The tables as a whole: `vigil projections`."""
        from vigil.client.stack.projections import ProjectionCalls

        return ProjectionCalls(self.connections)

    @cached_property
    def repairs(self) -> RepairCalls:
        """Repairs by hand: `vigil doctor`, `recover`, `reconcile`."""
        from vigil.client.stack.repairs import RepairCalls

        return RepairCalls(self.connections)

    @cached_property
    def retention(self) -> RetentionCalls:
        """How long things are kept, and what is held: `vigil retention`."""
        from vigil.client.stack.retention import RetentionCalls

        return RetentionCalls(self.connections)

    @cached_property
    def signals(self) -> SignalCalls:
        """Signals: `vigil episodes resolve`."""
        from vigil.client.signals import SignalCalls

        return SignalCalls(self.connections)

    @cached_property
    def tokens(self) -> TokenCalls:
        """Tokens of programs: `vigil tokens`."""
        from vigil.client.stack.tokens import TokenCalls

        return TokenCalls(self.connections)

    @cached_property
    def workflows(self) -> WorkflowCalls:
        """Instances of workflows: `vigil workflows`."""
        from vigil.client.workflows import WorkflowCalls

        return WorkflowCalls(self.connections)


def _require_address(dsn: str) -> None:
    """Raise `Mistake` if a DSN cannot be read; the error does not show it."""
    from projections.postgres.dsn import address

    try:
        address(dsn)
    except PostgresUnavailable as error:
        raise Mistake(f"postgres_dsn: {error}") from None
