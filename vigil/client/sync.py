"""`SyncClient`: a stack, for programs that do not wait. Generated from `Client`.

Each call is the one of the same name, run on an event loop in a thread of the client's own.
To write this file anew: python -m tests.client.synced
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Self

from msgspec import UNSET

from engine.people.identity import Role
from engine.people.token import TOKEN_S
from vigil.client.actors import DRAIN_S
from vigil.client.client import Client
from vigil.client.dead_letters import WAITING
from vigil.client.episodes import FAILURES_MAX, silent
from vigil.client.events import REPLAYED_DEFAULT, RULINGS_KEPT_DEFAULT
from vigil.client.page import LIMIT_MAX
from vigil.client.stack.nodes import READY_S
from vigil.client.stack.projections import KEEP
from vigil.client.stack.repairs import STALE_AFTER_S
from vigil.client.thread import LoopThread
from vigil.settings import DECISION_S, ROLLOUT_S, WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from typing import Literal
    from uuid import UUID

    from engine.agents.prompts.model_prompt import ModelPrompt
    from engine.app.actor import Actor, Logging
    from engine.app.app import App
    from engine.definitions.store import DefinitionChange
    from engine.definitions.text import Format, Written
    from engine.findings.store import FindingChange
    from engine.operations.decide_request import ApprovalTarget
    from engine.operations.events.why_event import EventVerdicts
    from engine.operations.reconcile import Reconciled
    from engine.operations.replay import Frame
    from engine.orders.store import OrderDrift
    from engine.people.identity import Identity
    from engine.people.sign_in import SignedIn
    from engine.people.vouched import Vouched
    from engine.validation import Duration
    from engine.workflows.instance import Instance
    from projections.custom.projection import Projection
    from projections.postgres.query_result import Row, Table
    from projections.postgres.reader import OneOrMore
    from projections.postgres.rebuild.pace import RebuildProgress
    from projections.postgres.rebuild.rebuild import RebuildReport, VerifyReport
    from projections.records import (
        AuditEntry,
        CostBy,
        DeadLetterRecord,
        DeadLetterSummary,
        DecisionSummary,
        EpisodeCause,
        EpisodeRecord,
        EpisodeSummary,
        FailureGroup,
        FindingCause,
        FindingRecord,
        FindingSummary,
        InboxItem,
        OrderSummary,
        OutputRecord,
        OutputSummary,
        RefusalSummary,
        RelatedFinding,
        ServiceLevelRecord,
        StepRow,
        TimelineEntry,
        TokenSummary,
        WorkflowRecord,
        WorkflowSummary,
    )
    from streams.json import JsonObject
    from streams.model.definitions import RegisteredDefinition
    from streams.model.people import SavedView
    from streams.model.refusals import Refusal
    from streams.model.triggers import LogStrategy, Overrides
    from streams.ports.domain_events import DomainEvent
    from streams.subjects import Stack
    from vigil.asking.approval_requests import ApprovalRequest
    from vigil.asking.definitions.changes import (
        AppliedDefinition,
        CurrentDefinition,
        DefinitionEntry,
        Withdrawal,
    )
    from vigil.asking.episode_diff import EpisodeDiff
    from vigil.asking.erasure import Erasure
    from vigil.asking.repairs.diagnosis import DoctorCheck
    from vigil.asking.repairs.losses import StackLosses
    from vigil.asking.repairs.recovery import RecoverReport
    from vigil.asking.requests import CommandOutcome
    from vigil.asking.stack import Rollout
    from vigil.asking.starting import StartedInstance
    from vigil.asking.would import EventsReplayed, WouldVerdicts
    from vigil.client.actors import ActorCalls, ActorRecord, ActorSummary
    from vigil.client.approvals import ApprovalCalls
    from vigil.client.dead_letters import DeadLetterCalls
    from vigil.client.episodes import (
        EpisodeCalls,
        EpisodeLog,
        EpisodeReceipt,
        EpisodeSpan,
        EpisodeToCancel,
        ForkEachOutcome,
        NewestCount,
    )
    from vigil.client.events import EventCalls, PublishedEvent, PublishReceipt
    from vigil.client.findings import FindingCalls
    from vigil.client.outputs import OutputCalls
    from vigil.client.page import Page
    from vigil.client.signals import SignalCalls
    from vigil.client.stack.costs import CostReport
    from vigil.client.stack.definitions import DefinitionCalls, DefinitionMoment
    from vigil.client.stack.erasure import ErasureCalls
    from vigil.client.stack.nodes import NodeCalls, NodesView, StreamPosition
    from vigil.client.stack.orders import OrderCalls, OrderOutcome
    from vigil.client.stack.people import PeopleCalls, PersonRecord, SessionRecord
    from vigil.client.stack.projections import ProjectionCalls, ProjectionsView
    from vigil.client.stack.repairs import RepairCalls
    from vigil.client.stack.retention import (
        RetentionCalls,
        RetentionHold,
        RetentionOutcome,
        RetentionView,
    )
    from vigil.client.stack.tokens import NewToken, TokenCalls
    from vigil.client.workflows import WorkflowCalls


class SyncClient:
    """The calls of `Client`, for programs that do not wait. Use it with `with`.

        with SyncClient(stack="shop", by="ann") as client:
            client.publish("probe.failed", {"service": "pay"})

    Settings and errors are those of `Client`. Threads may share one.
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
        """Read the settings; nothing is connected yet. Raises `Mistake` as `Client` does."""
        self._client = Client(
            nats_url=nats_url,
            nats_creds=nats_creds,
            nats_inbox=nats_inbox,
            nats_domain=nats_domain,
            postgres_dsn=postgres_dsn,
            stack=stack,
            env=env,
            by=by,
            create_stack=create_stack,
        )
        self._thread = LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread: no call can be made after that."""
        if self._thread.has_ended:
            return
        try:
            self._thread.run(self._client.close())
        finally:
            self._thread.close()

    @property
    def stack(self) -> Stack:
        """The stack, as its settings name it."""
        return self._client.stack

    def publish(
        self, name: str, payload: JsonObject | bytes, *, id: str | None = None
    ) -> PublishReceipt:
        """Publish a domain event, as `client.events.publish` does."""
        return self._thread.run(self._client.publish(name, payload, id=id))

    def signal(
        self, ref: str, result: object = None, *, by: str | None = None, id: str | None = None
    ) -> PublishReceipt:
        """Send the result of `ref` to all that wait for it, as `client.signals.send` does."""
        return self._thread.run(self._client.signal(ref, result, by=by, id=id))

    def fire(
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
        return self._thread.run(
            self._client.fire(
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
        )

    def inbox(
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
        return self._thread.run(
            self._client.inbox(
                kind=kind, actor=actor, at=at, after=after, reverse=reverse, limit=limit
            )
        )

    def count_inbox(
        self, *, actor: OneOrMore | None = None, at: datetime | None = None
    ) -> Mapping[str, int]:
        """Return kind → how much of it waits for a person; with `at`, how much waited then.

        Raises:
            Mistake: `at` has no time zone or is yet to come.
        """
        return self._thread.run(self._client.count_inbox(actor=actor, at=at))

    def costs(
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
        return self._thread.run(self._client.costs(by=by, since=since, until=until, limit=limit))

    def sql(self, text: str) -> Table:
        """Return the answer to one SQL statement that only reads, up to 10,000 rows.

        Raises:
            Mistake: it is wrong, writes, has no statement or several, or takes over 30 s.
        """
        return self._thread.run(self._client.sql(text))

    @cached_property
    def actors(self) -> SyncActorCalls:
        """Actors: `vigil actors`."""
        return SyncActorCalls(self._client.actors, self._thread)

    @cached_property
    def approvals(self) -> SyncApprovalCalls:
        """What waits for approval: `approve` and `deny` of the commands."""
        return SyncApprovalCalls(self._client.approvals, self._thread)

    @cached_property
    def dead_letters(self) -> SyncDeadLetterCalls:
        """Dead letters: `vigil dead`."""
        return SyncDeadLetterCalls(self._client.dead_letters, self._thread)

    @cached_property
    def definitions(self) -> SyncDefinitionCalls:
        """Definitions of actors and workflows: `vigil apply`, and `disable` and `history`."""
        return SyncDefinitionCalls(self._client.definitions, self._thread)

    @cached_property
    def episodes(self) -> SyncEpisodeCalls:
        """Episodes: `vigil episodes`, `vigil fire`."""
        return SyncEpisodeCalls(self._client.episodes, self._thread)

    @cached_property
    def events(self) -> SyncEventCalls:
        """Domain events: `vigil publish`, `vigil events why`."""
        return SyncEventCalls(self._client.events, self._thread)

    @cached_property
    def findings(self) -> SyncFindingCalls:
        """Findings: `vigil findings`."""
        return SyncFindingCalls(self._client.findings, self._thread)

    @cached_property
    def nodes(self) -> SyncNodeCalls:
        """Nodes and their modes: `vigil mode`."""
        return SyncNodeCalls(self._client.nodes, self._thread)

    @cached_property
    def erasure(self) -> SyncErasureCalls:
        """Encrypting data of subjects, and erasing them."""
        return SyncErasureCalls(self._client.erasure, self._thread)

    @cached_property
    def orders(self) -> SyncOrderCalls:
        """What people have ordered: `vigil orders`."""
        return SyncOrderCalls(self._client.orders, self._thread)

    @cached_property
    def outputs(self) -> SyncOutputCalls:
        """Outputs: `vigil outputs`."""
        return SyncOutputCalls(self._client.outputs, self._thread)

    @cached_property
    def people(self) -> SyncPeopleCalls:
        """People, and signing in: `vigil users`."""
        return SyncPeopleCalls(self._client.people, self._thread)

    @cached_property
    def projections(self) -> SyncProjectionCalls:
        """The tables as a whole: `vigil projections`."""
        return SyncProjectionCalls(self._client.projections, self._thread)

    @cached_property
    def repairs(self) -> SyncRepairCalls:
        """Repairs by hand: `vigil doctor`, `recover`, `reconcile`."""
        return SyncRepairCalls(self._client.repairs, self._thread)

    @cached_property
    def retention(self) -> SyncRetentionCalls:
        """How long things are kept, and what is held: `vigil retention`."""
        return SyncRetentionCalls(self._client.retention, self._thread)

    @cached_property
    def signals(self) -> SyncSignalCalls:
        """Signals: `vigil episodes resolve`."""
        return SyncSignalCalls(self._client.signals, self._thread)

    @cached_property
    def tokens(self) -> SyncTokenCalls:
        """Tokens of programs: `vigil tokens`."""
        return SyncTokenCalls(self._client.tokens, self._thread)

    @cached_property
    def workflows(self) -> SyncWorkflowCalls:
        """Instances of workflows: `vigil workflows`."""
        return SyncWorkflowCalls(self._client.workflows, self._thread)


class SyncActorCalls:
    """The calls of `ActorCalls`, for programs that do not wait."""

    def __init__(self, calls: ActorCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def list(self) -> Sequence[ActorSummary]:
        """Return the actors that nodes have, that were defined, are paused, or have open episodes.

        Without Postgres, `queued`, `running` and `blocked` are None.
        """
        return self._thread.run(self._calls.list())

    def get(self, actor: str) -> ActorRecord:
        """Return one actor, and the state of each of its expectations.

        Raises:
            NotFound: nobody knows it.
        """
        return self._thread.run(self._calls.get(actor))

    def refusals(self, actor: str, expectation: str, *, limit: int = 20) -> Sequence[Refusal]:
        """Return why events did not fire an expectation, the newest first.

        The newest 200 of the last 24 hours are kept.

        Raises:
            NotFound: there are none, and nobody knows the actor, or it has no such expectation.
        """
        return self._thread.run(self._calls.refusals(actor, expectation, limit=limit))

    def service_levels(
        self, *, actor: str | None = None, limit: int = 50
    ) -> Sequence[ServiceLevelRecord]:
        """Return what expectations promise and how many of their latest episodes have kept it.

        Of the rows, those that keep it worst first. An expectation that promises nothing, or none
        of whose episodes has ended, has none.
        """
        return self._thread.run(self._calls.service_levels(actor=actor, limit=limit))

    def pause(self, actor: str, *, reason: str = "", by: str | None = None) -> OrderOutcome:
        """Pause an actor: no node opens episodes of it. Open episodes go on, and new events wait.

        Raises:
            NotFound: nodes are up, and nobody knows it.
        """
        return self._thread.run(self._calls.pause(actor, reason=reason, by=by))

    def resume(self, actor: str, *, reason: str = "", by: str | None = None) -> OrderOutcome:
        """Resume a paused actor: nodes open episodes again, first for events that have waited.

        Raises:
            NotFound: it was not paused, and nobody knows it.
        """
        return self._thread.run(self._calls.resume(actor, reason=reason, by=by))

    def reset(
        self, actor: str, expectation: str, *, reason: str = "", by: str | None = None
    ) -> OrderOutcome:
        """Close the circuit breaker of an expectation, and forget the failures that it has counted.

        Raises:
            NotFound: nodes are up, and nobody knows the actor, or it has no such expectation.
            Trouble: the expectation has no circuit breaker that the cluster shares.
        """
        return self._thread.run(self._calls.reset(actor, expectation, reason=reason, by=by))

    def drain(self, actor: str, *, timeout_s: float = DRAIN_S) -> Iterator[str]:
        """Wait until nothing of a paused actor is queued or runs; yield what is left, in words.

        Raises:
            NotFound: nobody knows it.
            Trouble: something is left after `timeout_s`.
        """
        return self._thread.iterate(self._calls.drain(actor, timeout_s=timeout_s))


class SyncApprovalCalls:
    """The calls of `ApprovalCalls`, for programs that do not wait."""

    def __init__(self, calls: ApprovalCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def read(self, target: ApprovalTarget | UUID | str) -> ApprovalRequest:
        """Return the newest request of `target`, which waits for a decision.

        Raises:
            Mistake: nothing can be called so, or the beginning of an id is that of several.
            NotFound: there is no such thing on the journal.
            AlreadyDecided: it does not wait any more.
            Trouble: it does not ask for approval.
        """
        return self._thread.run(self._calls.read(target))

    def decided(
        self,
        *,
        by: str | None = None,
        actor: OneOrMore | None = None,
        episode_ids: Sequence[UUID] | None = None,
        at: datetime | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[DecisionSummary]:
        """Return what people have decided on, of the rows: the latest first.

        Of a request that several people had to approve, an episode's and a step's is one decision
        of all of them; an output's also has each approval before the last.

        Args:
            by: only what this person has decided.
            actor: one, or several.
            episode_ids: only what these episodes had asked for, and their outputs.
            at: only what was decided by then; None: all.
            after: the `next` of a page: what follows it.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: `after` is no such `next`, or `at` has no time zone or is yet to come.
        """
        return self._thread.run(
            self._calls.decided(
                by=by,
                actor=actor,
                episode_ids=episode_ids,
                at=at,
                after=after,
                reverse=reverse,
                limit=limit,
            )
        )

    def decide(
        self,
        target: ApprovalTarget | UUID | str,
        verdict: Literal["approve", "deny"],
        *,
        plan_hash: str | None = None,
        changes: object = UNSET,
        reason: str = "",
        by: str | None = None,
        wait_s: float | None = DECISION_S,
    ) -> CommandOutcome:
        """Decide on the newest request of `target`, and return what became of it.

        Where several people have to approve it, the outcome of all but the last says how many have.
        Who has changed the plan is the first to approve what it became, and the others see that.

        Args:
            plan_hash: the first 8 hex digits, or more, of the hash of what was looked at; None:
                what waits now.
            changes: a JSON merge patch (RFC 7396) for the plan, or for the input of each item of a
                step; unset: none.
            wait_s: how long to wait until it is on the journal, in seconds; None: not at all.

        Raises:
            NotFound: there is no such thing on the journal.
            Mistake: a value is impossible.
            Trouble: it does not wait, waits with another plan, or `by` may not decide on it.
        """
        return self._thread.run(
            self._calls.decide(
                target,
                verdict,
                plan_hash=plan_hash,
                changes=changes,
                reason=reason,
                by=by,
                wait_s=wait_s,
            )
        )


class SyncDeadLetterCalls:
    """The calls of `DeadLetterCalls`, for programs that do not wait."""

    def __init__(self, calls: DeadLetterCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def find(self, key: str) -> str:
        """Return the key of a dead letter whose key alone begins so; a whole one is not looked up.

        Raises:
            Mistake: it is the beginning of several.
            NotFound: there is no such dead letter.
        """
        return self._thread.run(self._calls.find(key))

    def list(
        self,
        *,
        status: OneOrMore | None = WAITING,
        actor: OneOrMore | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[DeadLetterSummary]:
        """Return dead letters, the latest first.

        Args:
            status: `waiting`, `requeued` or `discarded`, or several of them; None: any.
            actor: one, or several.
            after: the `next` of a page: what follows it. Or a key: what the list has after that
                dead letter.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: there is no such `status`.
            NotFound: there is no dead letter of the key `after`.
        """
        return self._thread.run(
            self._calls.list(status=status, actor=actor, after=after, reverse=reverse, limit=limit)
        )

    def count(self, *, actor: OneOrMore | None = None) -> Mapping[str, int]:
        """Return status → how many of the dead letters that fit have it."""
        return self._thread.run(self._calls.count(actor=actor))

    def get(self, key: str) -> DeadLetterRecord:
        """Return one dead letter.

        Raises:
            NotFound: the rows have no dead letter of this key.
        """
        return self._thread.run(self._calls.get(key))

    def describe(self, key: str) -> Row:
        """Return the same with every column, and `what_to_do`: the command that settles it.

        Raises:
            NotFound: the rows have no dead letter of this key.
        """
        return self._thread.run(self._calls.describe(key))

    def requeue(self, *keys: str, by: str | None = None) -> Sequence[CommandOutcome]:
        """Try again what they are about, and return what became of each.

        An event is published again, for an episode that failed another one is opened, a command is
        sent again. A dead letter that is settled, or that there is not, is refused.

        Raises:
            Mistake: a key is the beginning of several.
            NotFound: no dead letter has a key that begins so.
        """
        return self._thread.run(self._calls.requeue(*keys, by=by))

    def discard(self, *keys: str, reason: str, by: str | None = None) -> Sequence[CommandOutcome]:
        """Discard dead letters, which stay in the table, and return what became of each.

        One that is settled, or that there is not, is refused.

        Raises:
            Mistake: a key is the beginning of several.
            NotFound: no dead letter has a key that begins so.
        """
        return self._thread.run(self._calls.discard(*keys, reason=reason, by=by))


class SyncDefinitionCalls:
    """The calls of `DefinitionCalls`, for programs that do not wait."""

    def __init__(self, calls: DefinitionCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def apply(
        self,
        *sources: str | Path | JsonObject,
        kind: str | None = None,
        form: Format | None = None,
        app: App | None = None,
        if_revision: int | None = None,
        dry_run: bool = False,
        reason: str = "",
        by: str | None = None,
        on_applied: Callable[[AppliedDefinition], None] | None = None,
    ) -> Sequence[AppliedDefinition]:
        """Apply definitions: nodes run them within moments, and open episodes go on as they began.

        All are checked together before any is applied, actors before workflows.

        Args:
            sources: definitions as data, or names of files with such and of folders with files;
                `-` is the standard input.
            kind: what they must be; None: of both kinds.
            form: `yaml`, `json` or `toml`, of files; None: as their names tell.
            app: what nodes run, which must have what they name; None: only what no app can have is
                refused, and the rest is told as `unchecked`.
            if_revision: only if this is still the revision of the one that is applied; 0: only if
                it was never defined.
            dry_run: return what would change, and change nothing.
            on_applied: is called for each, so that what was applied is known if a later one fails.

        Raises:
            Mistake: a definition cannot work; nothing is applied.
            Trouble: a file cannot be read, a node has one in its code, or others have changed one
                meanwhile: those before that one are applied.
        """
        return self._thread.run(
            self._calls.apply(
                *sources,
                kind=kind,
                form=form,
                app=app,
                if_revision=if_revision,
                dry_run=dry_run,
                reason=reason,
                by=by,
                on_applied=on_applied,
            )
        )

    def wait_rollout(
        self, applied: Sequence[AppliedDefinition], *, timeout_s: float = ROLLOUT_S
    ) -> Sequence[Rollout]:
        """Return what nodes make of each that was applied, once all of them have said so.

        A node that has not after `timeout_s` is `silent`.
        """
        return self._thread.run(self._calls.wait_rollout(applied, timeout_s=timeout_s))

    def disable(
        self,
        kind: str,
        id: str,
        *,
        if_revision: int | None = None,
        reason: str = "",
        by: str | None = None,
    ) -> DefinitionChange:
        """Disable a definition until it is applied again. Open episodes go on, new events wait.

        Args:
            if_revision: only if this is still its revision.

        Raises:
            NotFound: nobody has ever defined it.
            Trouble: others have changed it since `if_revision`.
        """
        return self._thread.run(
            self._calls.disable(kind, id, if_revision=if_revision, reason=reason, by=by)
        )

    def wait_withdrawal(self, kind: str, id: str, *, timeout_s: float = ROLLOUT_S) -> Withdrawal:
        """Return which nodes still use what was disabled, once none does or the time is over."""
        return self._thread.run(self._calls.wait_withdrawal(kind, id, timeout_s=timeout_s))

    def list(self, *, kind: str | None = None) -> Sequence[RegisteredDefinition]:
        """Return what was ever defined, each at its newest revision, in the order of kind and id.

        What is disabled has no `body`, and does not hold.
        """
        return self._thread.run(self._calls.list(kind=kind))

    def get(self, kind: str, id: str) -> CurrentDefinition:
        """Return a definition as its journal has it, and the workflows that need it.

        Raises:
            NotFound: nobody has ever defined it.
        """
        return self._thread.run(self._calls.get(kind, id))

    def read(self, kind: str, id: str, *, revision: int | None = None) -> JsonObject:
        """Return a definition as data that can be applied again.

        Args:
            revision: which; None: the one that was applied last, also if it is disabled now.

        Raises:
            NotFound: nobody has ever defined it, or it has no such revision.
        """
        return self._thread.run(self._calls.read(kind, id, revision=revision))

    def text(
        self, kind: str, id: str, *, revision: int | None = None, form: Written = "yaml"
    ) -> str:
        """Return the same as the text of a file, in `yaml` or `json`."""
        return self._thread.run(self._calls.text(kind, id, revision=revision, form=form))

    def diff(self, kind: str, id: str, *, since: int, revision: int | None = None) -> Sequence[str]:
        """Return what differs between two revisions of a definition, in lines for people.

        Args:
            since: the earlier one.
            revision: the later one; None: the one that was applied last.

        Raises:
            NotFound: nobody has ever defined it, or it has no such revision.
        """
        return self._thread.run(self._calls.diff(kind, id, since=since, revision=revision))

    def changes(self, *, since: datetime) -> Sequence[DefinitionMoment]:
        """Return when definitions were applied or disabled since then, in order; of the rows.

        Raises:
            Mistake: a time has no time zone.
        """
        return self._thread.run(self._calls.changes(since=since))

    def history(self, kind: str, id: str) -> Sequence[DefinitionEntry]:
        """Return the changes of a definition, oldest first, with what each has changed.

        Raises:
            NotFound: nobody has ever defined it.
        """
        return self._thread.run(self._calls.history(kind, id))


class SyncEpisodeCalls:
    """The calls of `EpisodeCalls`, for programs that do not wait."""

    def __init__(self, calls: EpisodeCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def find(self, id: UUID | str) -> UUID:
        """Return the id of an episode whose id alone begins so; a whole id is not looked up.

        Raises:
            Mistake: it can be no such id, or is the beginning of several.
            NotFound: there is no such episode.
        """
        return self._thread.run(self._calls.find(id))

    def latest(self) -> UUID:
        """Return the id of the episode that was opened last; `NotFound`: there is none."""
        return self._thread.run(self._calls.latest())

    def list(
        self,
        *,
        status: OneOrMore | None = None,
        actor: OneOrMore | None = None,
        expectation: str | None = None,
        subject: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        error_class: str | None = None,
        at: datetime | None = None,
        after: UUID | str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[EpisodeSummary]:
        """Return the episodes that fit all that is given: queued first, then the latest started.

        Args:
            status: `queued`, `running`, `blocked`, `done`, `failed`, `partially_failed` or
                `canceled`, or several of them; None: any.
            actor: one, or several.
            subject: the id of what they are about.
            since: only those that were opened then or later.
            until: only those that were opened before.
            error_class: only those that ended with it, such as `crash`.
            at: as they were then, the latest opened first; None: as they are. None where nobody
                knows any more: what one that had started and not ended had used, its model and
                agent, the metadata of one that had not ended, and places in a queue. As of now,
                too: `journal_seq`. Of an episode that nodes gave back or that waited for its
                outputs several times, only the last time is known: before, it is `running`.
            after: the `next` of a page: what follows it. Or, without `at`, an id: what the list has
                now after that episode.
            reverse: from the other end of the list: the first that started comes first.

        Raises:
            Mistake: there is no such `status`, a time has no time zone, `at` is yet to come, or
                `after` is neither.
            NotFound: there is no episode of the id `after`.
        """
        return self._thread.run(
            self._calls.list(
                status=status,
                actor=actor,
                expectation=expectation,
                subject=subject,
                since=since,
                until=until,
                error_class=error_class,
                at=at,
                after=after,
                reverse=reverse,
                limit=limit,
            )
        )

    def count(
        self,
        *,
        actor: OneOrMore | None = None,
        expectation: str | None = None,
        subject: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        at: datetime | None = None,
    ) -> Mapping[str, int]:
        """Return status → how many of the episodes that fit have it; arguments are as for `list`.

        Raises:
            Mistake: a time has no time zone, or `at` is yet to come.
        """
        return self._thread.run(
            self._calls.count(
                actor=actor,
                expectation=expectation,
                subject=subject,
                since=since,
                until=until,
                at=at,
            )
        )

    def count_newest(
        self,
        *,
        actor: OneOrMore | None = None,
        expectation: str | None = None,
        at: datetime | None = None,
    ) -> Mapping[str, NewestCount]:
        """Return status → how many of the newest 1,000 episodes with it fit.

        However many there are, this takes some milliseconds; `count` looks at all.

        Args:
            at: as they were at that time, of the 1,000 that fit and were opened last before it; a
                status that none of them had is left out.

        Raises:
            Mistake: `at` has no time zone, or is yet to come.
        """
        return self._thread.run(
            self._calls.count_newest(actor=actor, expectation=expectation, at=at)
        )

    def count_over_time(
        self,
        *,
        since: datetime,
        span_s: float,
        actor: str | None = None,
        expectation: str | None = None,
    ) -> Sequence[EpisodeSpan]:
        """Return how many episodes have started in each span of time since then, in order.

        Args:
            since: the beginning of the first span.
            span_s: the length of a span, in seconds, at least 1.
            actor: only of this one; None: of all.
            expectation: as `actor`.

        Raises:
            Mistake: a time has no time zone, or a span is too short.
        """
        return self._thread.run(
            self._calls.count_over_time(
                since=since, span_s=span_s, actor=actor, expectation=expectation
            )
        )

    def failures(
        self,
        *,
        actor: OneOrMore | None = None,
        expectation: str | None = None,
        since: datetime | None = None,
        newest: int = FAILURES_MAX,
        limit: int = 50,
    ) -> Sequence[FailureGroup]:
        """Return failed episodes, those that failed alike as one, the last failed first.

        They failed alike if they are of the same expectation, with the same class of error, and the
        last step that failed called the same tool.

        Args:
            actor: one, or several.
            since: only those that started then or later.
            newest: how many are looked at, of those that started last: from 1 to 10,000. A thousand
                take some ten milliseconds.

        Raises:
            Mistake: a time has no time zone, or `newest` is out of range.
        """
        return self._thread.run(
            self._calls.failures(
                actor=actor, expectation=expectation, since=since, newest=newest, limit=limit
            )
        )

    def get(self, id: UUID | str) -> EpisodeRecord:
        """Return one episode."""
        return self._thread.run(self._calls.get(id))

    def describe(self, id: UUID | str, *, at: datetime | None = None) -> Row:
        """Return everything about one episode, as `vigil episodes show --json` prints it.

        `waits_for` is a row or None, `findings` are what it did to findings, `outputs` are rows of
        those that it proposed, each with its `outcome` once that is settled, and `children` are
        those that it has started, theirs, and so on.

        Args:
            at: as all of that was then; None: as it is. None where nobody knows any more, as for
                `list`.

        Raises:
            NotFound: there is no such episode, or there was none by then.
            Mistake: `at` has no time zone or is yet to come.
        """
        return self._thread.run(self._calls.describe(id, at=at))

    def causal_chain(self, id: UUID | str, *, depth: int = 10) -> Sequence[EpisodeCause]:
        """Return an episode and what led to it, step by step, up to `depth` steps.

        What led to a child is its parent, to a fork the episode that it was made of, and to any
        other the episode that the engine's event tells of, such as that of `finding.raised`; for an
        item of a workflow, of the event that started the instance. The last one was woken from
        outside, by time or by a person, or by an episode that the rows do not have.

        Raises:
            NotFound: the rows have no such episode.
        """
        return self._thread.run(self._calls.causal_chain(id, depth=depth))

    def steps(
        self, id: UUID | str, *, after: str | None = None, limit: int = LIMIT_MAX
    ) -> Page[StepRow]:
        """Return the steps of one episode, in order, as far as people may see them.

        Args:
            after: the `next` of a page: only what follows it.

        Raises:
            Mistake: `after` is no such `next`.
        """
        return self._thread.run(self._calls.steps(id, after=after, limit=limit))

    def timeline(
        self,
        id: UUID | str,
        *,
        at: datetime | None = None,
        after: str | None = None,
        limit: int = LIMIT_MAX,
    ) -> Page[TimelineEntry]:
        """Return all that one episode did, in order, as far as people may see it.

        Args:
            at: only what it had done by then; None: all.
            after: the `next` of a page: only what follows it.

        Raises:
            Mistake: `after` is no such `next`, or `at` has no time zone or is yet to come.
        """
        return self._thread.run(self._calls.timeline(id, at=at, after=after, limit=limit))

    def log(self, id: UUID | str, *, strategy: Logging | LogStrategy | None = None) -> EpisodeLog:
        """Return what one episode did, as far as its log strategy lets people see it.

        Args:
            strategy: how much to return, of what is kept; None: the episode's own.

        Raises:
            Mistake: there is no such `strategy`.
        """
        return self._thread.run(self._calls.log(id, strategy=strategy))

    def tail(
        self,
        id: UUID | str,
        *,
        strategy: Logging | LogStrategy | None = None,
        timeout_s: float = WAIT_S,
        deltas: bool = False,
    ) -> Iterator[Row]:
        """Yield the lines of an episode's log, once each, until it has ended.

        Args:
            strategy: as for `log`.
            timeout_s: longest wait for its end, in seconds.
            deltas: between them, yield what models answer while they do, if their agents are run
                with `stream=True`: rows whose `kind` is `delta`, each with the `path` of its step,
                the `attempt` of the episode, its `place` in the answer, from 0, the `text` that
                follows, the `tools` of calls that begin then, and the `end` of the last one, `done`
                or `failed`. `missing` is how many were lost before it; if one `is_anew`, what came
                before is of an attempt that has died. Where NATS cannot be heard, a row whose
                `kind` is `no_deltas` says `why`, and the log goes on.

        Raises:
            NotFound: it is not there after 10 s.
            Trouble: it has not ended after `timeout_s`.
        """
        return self._thread.iterate(
            self._calls.tail(id, strategy=strategy, timeout_s=timeout_s, deltas=deltas)
        )

    def result(self, id: UUID | str, step_no: int) -> object:
        """Return the result of a step, however large, as far as people may see it.

        Raises:
            NotFound: there is no such step on the journal.
            Trouble: it has failed, may not be shown, or is lost.
        """
        return self._thread.run(self._calls.result(id, step_no))

    def prompt(self, id: UUID | str, step_no: int | None = None) -> ModelPrompt:
        """Return what an agent asked its model in a step, as far as people may see it.

        It is computed from the journal: the instructions, the tools and the settings as they were
        then, and the conversation up to there. What tools hide is hidden there, too, and texts are
        cut as elsewhere. The log strategy of the episode must be `full_debug`.

        Args:
            step_no: the number of the step; None: of the newest that has asked a model. `requests`
                of the answer has the numbers of all of them.

        Raises:
            NotFound: there is no such step on the journal.
            Trouble: it is no request to a model, may not be shown, or is lost.
        """
        return self._thread.run(self._calls.prompt(id, step_no))

    def replay(self, id: UUID | str) -> Sequence[Frame]:
        """Return each event of an episode's journal, and the episode after it.

        Raises:
            NotFound: it is not on the journal.
        """
        return self._thread.run(self._calls.replay(id))

    def diff(self, left: UUID | str, right: UUID | str) -> EpisodeDiff:
        """Return how two episodes differ, by their journals, as far as people may see them.

        That is their common beginning, the first step that differs, the findings and outputs that
        they asked for, how they ended, and what each cost. Usually one is a fork of the other, or
        both are dry runs; they may be of different actors.

        Raises:
            NotFound: one of them is not on the journal.
        """
        return self._thread.run(self._calls.diff(left, right))

    def histories(
        self,
        *,
        actor: str,
        expectation: str | None = None,
        last: int = 100,
        say: Callable[[str], None] = silent,
    ) -> Mapping[str, bytes]:
        """Return id → history of an actor's live episodes that have ended, the newest first.

        A history is a journal with its large results, for `vigil.histories.load`. It is not
        redacted: protect it accordingly. Episodes that were canceled are left out, and those whose
        journal or large results are kept no longer.

        Args:
            last: how many at most, from 1 to 1,000.
            say: called with a line for people about each that is kept no longer.

        Raises:
            Mistake: there can be no such `last`.
        """
        return self._thread.run(
            self._calls.histories(actor=actor, expectation=expectation, last=last, say=say)
        )

    def wait(
        self, id: UUID | str, *, timeout_s: float = WAIT_S, delay_s: float = 0.0
    ) -> EpisodeRecord:
        """Return an episode once it has ended; it need not be opened yet.

        Args:
            delay_s: how long until it begins, which is waited for in any case, in seconds.

        Raises:
            Trouble: it has not ended in time.
        """
        return self._thread.run(self._calls.wait(id, timeout_s=timeout_s, delay_s=delay_s))

    def describe_end(
        self, id: UUID | str, *, timeout_s: float = WAIT_S, delay_s: float = 0.0
    ) -> Row:
        """Return the same with every column; arguments and errors are as for `wait`."""
        return self._thread.run(self._calls.describe_end(id, timeout_s=timeout_s, delay_s=delay_s))

    def fire(
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
        """Open an episode by hand, now or later.

        Args:
            key: idempotency key: the same one opens no second episode.
            priority: episodes with a higher number run earlier.
            at: when, with a time zone; None: now.
            overrides: results that a dry run uses instead of calling tools.
            metadata: to find the episode by.
            budget: limit → what it may use instead of what the expectation says.
            revision: of the actor's definition, to run it on; 0: today's.
            log_strategy: what people may see of it, instead of what is declared.
            attempts_max: crashes that end it, instead of what is declared; 0: that.

        Raises:
            NotFound: nodes are up, and nobody knows the actor, or it has no such expectation.
            Mistake: a value is impossible.
            Trouble: the actor is disabled, or never had the revision.
        """
        return self._thread.run(
            self._calls.fire(
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
        )

    def fork(
        self,
        id: UUID | str,
        *,
        at: int,
        payload: JsonObject | None = None,
        reason: str = "",
        by: str | None = None,
        key: str | None = None,
        dry_run: bool = False,
        overrides: Overrides | None = None,
    ) -> EpisodeReceipt:
        """Open an episode that begins with the first steps of another one.

        Args:
            at: the number of the last step that both have.
            payload: another one for the trigger; None: the same.
            key: idempotency key: the same one opens no second fork. Dry runs have keys of their
                own.
            overrides: results that a dry run uses instead of calling tools.

        Raises:
            NotFound: it is not on the journal.
            Mistake: a value is impossible.
            Trouble: the engine refuses it, as its message says.
        """
        return self._thread.run(
            self._calls.fork(
                id,
                at=at,
                payload=payload,
                reason=reason,
                by=by,
                key=key,
                dry_run=dry_run,
                overrides=overrides,
            )
        )

    def settle(
        self,
        id: UUID | str,
        settlement: str,
        *,
        result: object = None,
        call: str = "",
        reason: str = "",
        by: str | None = None,
    ) -> EpisodeReceipt:
        """Say what became of a call of an episode that ended as outcome_unknown, and go on.

        Args:
            settlement: `happened`, `not_happened` or `again`.
            result: with `happened`, what the call has returned.
            call: which call, such as 4.2.1, if several are open in a function.

        Raises as `fork` does.
        """
        return self._thread.run(
            self._calls.settle(id, settlement, result=result, call=call, reason=reason, by=by)
        )

    def fork_each(
        self,
        episodes: Iterable[EpisodeToCancel],
        *,
        at: int,
        reason: str = "",
        by: str | None = None,
        dry_run: bool = False,
    ) -> Sequence[ForkEachOutcome]:
        """Open a fork of each of `episodes`, once however often it is asked for."""
        return self._thread.run(
            self._calls.fork_each(episodes, at=at, reason=reason, by=by, dry_run=dry_run)
        )

    def cancel(
        self, *ids: UUID | str, reason: str = "", by: str | None = None
    ) -> Sequence[EpisodeToCancel]:
        """Request that episodes be canceled, be they queued, running or blocked; return as it was.

        One that has ended stays as it is, and one that there is not has an empty status. An open
        one is canceled once a node has handled the request: `wait` for that.

        Raises:
            Mistake: a text cannot be kept.
        """
        return self._thread.run(self._calls.cancel(*ids, reason=reason, by=by))

    def read(self, ids: Iterable[UUID]) -> Sequence[EpisodeToCancel]:
        """Return the status of each episode as its journal has it."""
        return self._thread.run(self._calls.read(ids))

    def unended(
        self,
        actor: str,
        *,
        expectation: str | None = None,
        status: str | None = None,
        say: Callable[[str], None] = silent,
    ) -> Sequence[EpisodeToCancel]:
        """Return all episodes of an actor that have not ended as far as rows show, oldest first.

        Args:
            status: `queued`, `running`, `blocked`, or `parked` for those of the blocked that wait
                for other code; None: any.
            say: called with a line for people if there are too many for one answer.

        Raises:
            NotFound: there are none, and nobody knows the actor or the expectation.
        """
        return self._thread.run(
            self._calls.unended(actor, expectation=expectation, status=status, say=say)
        )

    def cancel_each(
        self,
        episodes: Sequence[EpisodeToCancel],
        *,
        reason: str = "",
        by: str | None = None,
        say: Callable[[str], None] = silent,
    ) -> None:
        """Request that those of `episodes` that are open be canceled.

        Args:
            say: called with lines for people: how far it is, and what no node can end now.

        Raises:
            Mistake: a text cannot be kept.
        """
        return self._thread.run(self._calls.cancel_each(episodes, reason=reason, by=by, say=say))

    def wait_each(
        self, episodes: Iterable[EpisodeToCancel], *, timeout_s: float = WAIT_S
    ) -> Sequence[EpisodeToCancel]:
        """Return `episodes` once all of them have ended, each with its status then.

        Raises:
            Trouble: one has not ended after `timeout_s`.
        """
        return self._thread.run(self._calls.wait_each(episodes, timeout_s=timeout_s))


class SyncEventCalls:
    """The calls of `EventCalls`, for programs that do not wait."""

    def __init__(self, calls: EventCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def publish(
        self,
        name: str,
        payload: JsonObject | bytes,
        *,
        id: str | None = None,
        dry_run: bool = False,
    ) -> PublishReceipt:
        """Publish a domain event, and return once it is stored.

        Args:
            payload: an object, or the JSON of one.
            id: within two minutes, an event with the same id is kept once: give the same one again
                where the first call may have been cut off. None: a new one.
            dry_run: store nothing, and return what can be told without: whether a node hears it.
                `would_fire` tells what it would fire.

        Raises:
            Mistake: no engine would accept it.
        """
        return self._thread.run(self._calls.publish(name, payload, id=id, dry_run=dry_run))

    def would_fire(
        self, name: str, payload: JsonObject | bytes, *, id: str | None = None
    ) -> WouldVerdicts:
        """Return which expectations an event would fire if it was published now, and why not.

        Nothing is published, and nothing is changed. The rules are those of the nodes that are up;
        what they remember, such as cooldowns and open episodes, may have changed by the time that
        the event is published.

        Args:
            payload: as for `publish`.
            id: as which it is looked at: where only a sample fires, it decides. None: a new one,
                which the answer has.

        Raises:
            Mistake: no engine would accept it.
        """
        return self._thread.run(self._calls.would_fire(name, payload, id=id))

    def tail(
        self,
        *names: str,
        after: int | None = None,
        since: datetime | None = None,
        idle_s: float | None = None,
    ) -> Iterator[DomainEvent]:
        """Yield events as they come, oldest first, those that the engine publishes included.

        It ends when it is closed or the client is, and goes on from the `seq` of an event with
        `after`. What is no event, such as a message that is not JSON, is passed over.

        Args:
            names: only events called so; `*` stands for one word, a last `>` for one or more.
            after: begin past this sequence; 0: with the oldest that is kept.
            since: begin with what was stored at that time or later. Without this and `after`, with
                what is published from now on.
            idle_s: end once it has read all that there is, and nothing called so has come for so
                long, in seconds; 0: with the newest that there is. None: never.

        Raises:
            Mistake: both `after` and `since` are given, or one of them cannot be; no event can be
                called so.
            EventsMissed: what follows the last place was removed before it was read, by its age for
                example. To go on without it, begin anew with the error's `last_seq` as `after`.
            Trouble: the stream ends before the place to go on from: it is another one by now.
        """
        return self._thread.iterate(
            self._calls.tail(*names, after=after, since=since, idle_s=idle_s)
        )

    def latest(self, *, limit: int = 20) -> Sequence[PublishedEvent]:
        """Return the events that were published last, the newest first, without their payloads.

        Those that the engine publishes are left out, and so is what is no event: of the newest
        500 messages.

        Raises:
            Mistake: there can be no such `limit`.
        """
        return self._thread.run(self._calls.latest(limit=limit))

    def why_unheard(self, name: str) -> str:
        """Return why no node hears the event `name`, in words; empty: one does, or nobody knows."""
        return self._thread.run(self._calls.why_unheard(name))

    def why(self, event_id: str) -> EventVerdicts:
        """Return what each expectation did with an event: the episode, or why there is none.

        Of the last 24 hours, and the newest 200 refusals of each expectation; beyond that, only the
        episodes of an event are known.
        """
        return self._thread.run(self._calls.why(event_id))

    def refusals(
        self,
        *,
        actor: str | None = None,
        expectation: str | None = None,
        event: str | None = None,
        reason: str | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[RefusalSummary]:
        """Return events that did not fire an expectation, of the rows: the latest first.

        The newest 200 of each expectation are kept, for 24 hours.

        Args:
            event: only events called so; `tick`: ticks of schedules.
            reason: only those refused so, such as `cooldown`.
            after: the `next` of a page: what follows it.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: `after` is no such `next`.
        """
        return self._thread.run(
            self._calls.refusals(
                actor=actor,
                expectation=expectation,
                event=event,
                reason=reason,
                after=after,
                reverse=reverse,
                limit=limit,
            )
        )

    def would(
        self,
        *actors: Actor,
        since: datetime,
        limit: int = REPLAYED_DEFAULT,
        kept_max: int = RULINGS_KEPT_DEFAULT,
        on_progress: Callable[[str], None] | None = None,
    ) -> EventsReplayed:
        """Return what rules would have fired for the events that are kept. It changes nothing.

        Cooldown, debounce and equal causes are built from these events alone. Each episode is taken
        to end at once and well.

        Args:
            actors: those whose rules are looked at, as an app has them.
            since: the first event is one that was stored at that time or later.
            limit: most events to read.
            kept_max: most rulings of each kind to return; all are counted.
            on_progress: is told in words how far it is.

        Raises:
            Mistake: no expectation of `actors` is fired by events of the stack, or `since` cannot
                be.
        """
        return self._thread.run(
            self._calls.would(
                *actors, since=since, limit=limit, kept_max=kept_max, on_progress=on_progress
            )
        )


class SyncFindingCalls:
    """The calls of `FindingCalls`, for programs that do not wait."""

    def __init__(self, calls: FindingCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def list(
        self,
        *,
        status: OneOrMore | None = "active",
        severity: OneOrMore | None = None,
        actor: OneOrMore | None = None,
        at: datetime | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[FindingSummary]:
        """Return findings: the most severe first, then the latest changed.

        One that changes while pages are read moves to the front of its severity: later pages may
        lack it, or in reverse have it once more. None of the others is left out.

        Args:
            status: `active`, `cleared`, `expired`, or `superseded` for what was raised anew since,
                or several of them; None: any.
            severity: `low`, `medium`, `high` or `critical`, or several; None: any.
            actor: one, or several.
            at: as they were then, by their history; None: as they are. As of now, too: `class_` and
                `caused_by_key`.
            after: the `next` of a page: what follows it. Or, without `at`, a key: what the list has
                now after that finding.
            reverse: from the other end of the list: the least severe comes first.

        Raises:
            Mistake: there is no such `status` or `severity`, or `at` has no time zone or is yet to
                come.
            NotFound: there is no finding of the key `after`.
        """
        return self._thread.run(
            self._calls.list(
                status=status,
                severity=severity,
                actor=actor,
                at=at,
                after=after,
                reverse=reverse,
                limit=limit,
            )
        )

    def count(
        self,
        *,
        severity: OneOrMore | None = None,
        actor: OneOrMore | None = None,
        at: datetime | None = None,
        most: int | None = None,
    ) -> Mapping[str, int]:
        """Return status → how many of the findings that fit have it; arguments are as for `list`.

        Args:
            most: count no further than this of each status, so that it takes some milliseconds
                however many there are; None: all. With `at`, all are counted.

        Raises:
            Mistake: there is no such `severity`, or `at` has no time zone or is yet to come.
        """
        return self._thread.run(self._calls.count(severity=severity, actor=actor, at=at, most=most))

    def count_active(self, *, at: datetime | None = None) -> Mapping[str, int]:
        """Return severity → how many active findings have it, the worst first.

        With `at`, how many had it then.

        Raises:
            Mistake: `at` has no time zone or is yet to come.
        """
        return self._thread.run(self._calls.count_active(at=at))

    def get(self, key: str, *, at: datetime | None = None) -> FindingRecord:
        """Return the latest raise of a finding, and under `history` what happened to it.

        Args:
            at: as for `list`.

        Raises:
            NotFound: the rows have no finding of this key, or had none by then.
            Mistake: `at` has no time zone or is yet to come.
        """
        return self._thread.run(self._calls.get(key, at=at))

    def describe(self, key: str, *, at: datetime | None = None) -> Row:
        """Return the same with every column, as `vigil findings show --json` prints it.

        Arguments and errors are as for `get`.
        """
        return self._thread.run(self._calls.describe(key, at=at))

    def causal_chain(self, key: str, *, depth: int = 10) -> Sequence[FindingCause]:
        """Return a finding and what explains it, step by step, up to `depth` steps.

        Raises:
            NotFound: the rows have no finding of this key.
        """
        return self._thread.run(self._calls.causal_chain(key, depth=depth))

    def related(self, key: str) -> Sequence[RelatedFinding]:
        """Return a finding, what explains it and what it explains, the nearest first.

        Those up to 10 steps away, at most 100. Each has what the episodes that raised or changed it
        have cost, and what those of all have cost together: one may have changed several.

        Raises:
            NotFound: the rows have no finding of this key.
        """
        return self._thread.run(self._calls.related(key))

    def clear(self, key: str, *, reason: str = "", by: str | None = None) -> FindingChange:
        """Clear a finding; one that has ended stays as it is, and `is_made` is False.

        Raises:
            NotFound: no finding was ever raised under this key.
            Mistake: a text cannot be kept.
        """
        return self._thread.run(self._calls.clear(key, reason=reason, by=by))

    def acknowledge(self, key: str, *, reason: str = "", by: str | None = None) -> FindingChange:
        """Acknowledge a finding, which stays active; only the first one counts.

        `is_made` is False if somebody has, or if it has ended: `before` tells which.

        Raises:
            NotFound: no finding was ever raised under this key.
            Mistake: a text cannot be kept.
        """
        return self._thread.run(self._calls.acknowledge(key, reason=reason, by=by))

    def note(self, key: str, text: str, *, by: str | None = None) -> FindingChange:
        """Add a note to a finding, which may have ended. Repeated, it is noted again.

        Raises:
            NotFound: no finding was ever raised under this key.
            Mistake: the text is empty, or cannot be kept.
        """
        return self._thread.run(self._calls.note(key, text, by=by))


class SyncNodeCalls:
    """The calls of `NodeCalls`, for programs that do not wait."""

    def __init__(self, calls: NodeCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def read(self, *, node: str | None = None) -> NodesView:
        """Return the nodes that are up or have an order, or one of them, and what is paused.

        Raises:
            NotFound: the node is not up, and there is no order for it.
        """
        return self._thread.run(self._calls.read(node=node))

    def positions(self) -> Sequence[StreamPosition]:
        """Return how far rows and reactors are, for each stream of commits and its partitions."""
        return self._thread.run(self._calls.positions())

    def wait_ready(self, actor: str | None = None, *, timeout_s: float = READY_S) -> Sequence[str]:
        """Return the nodes that are up once one of them does work of the stack, by name.

        What is fired for an actor while nodes are up and none has it is refused, so a program that
        starts a node waits for that first: also for the stack, which its first node makes, and for
        a server that is just starting.

        Args:
            actor: wait until its episodes are opened and run, and it is not paused. None: until any
                node runs or opens episodes.
            timeout_s: the longest wait, in seconds; 0: look once.

        Raises:
            Trouble: none does after `timeout_s`; the error says why. `StackNotFound`: nobody has
                made the stack by then; `ServerAway`: the server does not answer.
        """
        return self._thread.run(self._calls.wait_ready(actor, timeout_s=timeout_s))

    def set_mode(
        self, node: str, mode: str, *, actor: str = "", reason: str = "", by: str | None = None
    ) -> OrderOutcome:
        """Set the mode of a node: it counts at once, and after restarts.

        Args:
            mode: `full`, `trigger_only` or `disabled`.
            actor: only for this actor; empty: for all.

        Raises:
            Mistake: there is no such mode.
            NotFound: nodes are up, and nobody knows the actor.
        """
        return self._thread.run(self._calls.set_mode(node, mode, actor=actor, reason=reason, by=by))

    def unset_mode(
        self, node: str, *, actor: str = "", reason: str = "", by: str | None = None
    ) -> OrderOutcome:
        """Remove the order of a mode: the node's own setting counts again.

        Args:
            actor: only for this actor; empty: for all.

        Raises:
            NotFound: there was no order, and nobody knows the node or the actor.
        """
        return self._thread.run(self._calls.unset_mode(node, actor=actor, reason=reason, by=by))


class SyncErasureCalls:
    """The calls of `ErasureCalls`, for programs that do not wait."""

    def __init__(self, calls: ErasureCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def kinds(self) -> Sequence[str]:
        """Return the kinds of subjects whose data are encrypted, such as `client_id`; none: off.

        Raises:
            Trouble: this client is on connections of somebody else, not on settings.
        """
        return self._thread.run(self._calls.kinds())

    def encrypt(self, *kinds: str, reason: str = "", by: str | None = None) -> Sequence[str]:
        """Encrypt what is written about subjects of more kinds; return all kinds.

        Nodes, projectors and clients do so once they are started again. What was written before
        stays as it is, and no kind is ever taken back.

        Args:
            kinds: as expectations have them in `subject_key`.

        Raises:
            Mistake: one of `kinds` cannot be one, or a text cannot be kept.
        """
        return self._thread.run(self._calls.encrypt(*kinds, reason=reason, by=by))

    def erase(
        self, subject: str, *, reason: str = "", dry_run: bool = False, by: str | None = None
    ) -> Erasure:
        """Destroy the key that all about a subject is encrypted with, such as `client_id/123`.

        Whatever has it then reads as erased; ids, counts and states stay. After an interruption it
        can be called again.

        Args:
            dry_run: destroy nothing, and return what there is.

        Raises:
            Mistake: nothing about such a subject is encrypted, people hold some of it, work about
                it has not ended, or a text cannot be kept.
        """
        return self._thread.run(self._calls.erase(subject, reason=reason, dry_run=dry_run, by=by))


class SyncOrderCalls:
    """The calls of `OrderCalls`, for programs that do not wait."""

    def __init__(self, calls: OrderCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def list(
        self,
        *,
        node: str | None = None,
        actor: str | None = None,
        at: datetime | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[OrderSummary]:
        """Return what people ordered, the latest first: with who, when and why.

        Args:
            at: only what was ordered by then; None: all.
            after: the `next` of a page: only what follows it.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: `after` is no such `next`, or `at` has no time zone or is yet to come.
        """
        return self._thread.run(
            self._calls.list(
                node=node, actor=actor, at=at, after=after, reverse=reverse, limit=limit
            )
        )

    def count(
        self, *, node: str | None = None, actor: str | None = None, at: datetime | None = None
    ) -> Mapping[str, int]:
        """Return change → how many of the orders that fit are of it, such as `actor_paused`.

        With `at`, only those that were given by then.

        Raises:
            Mistake: `at` has no time zone or is yet to come.
        """
        return self._thread.run(self._calls.count(node=node, actor=actor, at=at))

    def rebuild(self, *, dry_run: bool = False) -> Sequence[OrderDrift]:
        """Make the modes and pauses that nodes see what people have ordered.

        Returns what was not so; with `dry_run` nothing is changed.
        """
        return self._thread.run(self._calls.rebuild(dry_run=dry_run))


class SyncOutputCalls:
    """The calls of `OutputCalls`, for programs that do not wait."""

    def __init__(self, calls: OutputCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def list(
        self,
        *,
        status: OneOrMore | None = None,
        actor: OneOrMore | None = None,
        adapter: str | None = None,
        episode_id: UUID | str | None = None,
        at: datetime | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[OutputSummary]:
        """Return outputs, the latest proposed first.

        Args:
            status: `awaiting_approval`, `proposed`, `delivered`, `failed`, `rejected` or
                `canceled`, or several of them; None: any.
            actor: one, or several.
            episode_id: only of this episode, by its id or so much of it that it is one.
            at: as they were then, by their history; None: as they are. None where nobody knows any
                more: what was proposed, of one that was proposed anew since. As of now, too: the
                adapter.
            after: the `next` of a page: what follows it. Or, without `at`, a key: what the list has
                now after that output.
            reverse: from the other end of the list: the first proposed comes first.

        Raises:
            NotFound: there is no output of the key `after`, or no episode of that id.
            Mistake: there is no such `status`, or `at` has no time zone or is yet to come.
        """
        return self._thread.run(
            self._calls.list(
                status=status,
                actor=actor,
                adapter=adapter,
                episode_id=episode_id,
                at=at,
                after=after,
                reverse=reverse,
                limit=limit,
            )
        )

    def count(
        self,
        *,
        actor: OneOrMore | None = None,
        adapter: str | None = None,
        episode_id: UUID | str | None = None,
        at: datetime | None = None,
    ) -> Mapping[str, int]:
        """Return status → how many of the outputs that fit have it; arguments are as for `list`.

        Raises:
            NotFound: there is no episode of that id.
            Mistake: `at` has no time zone or is yet to come.
        """
        return self._thread.run(
            self._calls.count(actor=actor, adapter=adapter, episode_id=episode_id, at=at)
        )

    def get(self, key: str, *, at: datetime | None = None) -> OutputRecord:
        """Return an output as it was last proposed, and under `history` what happened to it.

        Args:
            at: as for `list`; `approved_by` then names all who had approved since people were last
                asked, of whatever plan.

        Raises:
            NotFound: the rows have no output of this key, or had none by then.
            Mistake: `at` has no time zone or is yet to come.
        """
        return self._thread.run(self._calls.get(key, at=at))

    def describe(self, key: str, *, at: datetime | None = None) -> Row:
        """Return the same with every column, as `vigil outputs show --json` prints it.

        Arguments and errors are as for `get`.
        """
        return self._thread.run(self._calls.describe(key, at=at))

    def retry(
        self, *keys: str, reason: str = "", by: str | None = None, wait_s: float | None = DECISION_S
    ) -> Sequence[CommandOutcome]:
        """Retry the delivery of outputs that have failed, and return what became of each.

        Args:
            wait_s: how long to wait until that is on the journal, in seconds; None: not at all.

        Raises:
            Mistake: a text cannot be kept.
        """
        return self._thread.run(self._calls.retry(*keys, reason=reason, by=by, wait_s=wait_s))

    def cancel(
        self, *keys: str, reason: str = "", by: str | None = None, wait_s: float | None = DECISION_S
    ) -> Sequence[CommandOutcome]:
        """Cancel outputs that are not delivered yet; their episodes go on.

        What is returned and raised is as for `retry`.
        """
        return self._thread.run(self._calls.cancel(*keys, reason=reason, by=by, wait_s=wait_s))


class SyncPeopleCalls:
    """The calls of `PeopleCalls`, for programs that do not wait."""

    def __init__(self, calls: PeopleCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def list(self) -> Sequence[PersonRecord]:
        """Return all people, by name."""
        return self._thread.run(self._calls.list())

    def get(self, name: str) -> PersonRecord:
        """Return somebody; raise `NotFound` if nobody is called so."""
        return self._thread.run(self._calls.get(name))

    def groups_of(self, name: str) -> Sequence[str]:
        """Return the groups of somebody, in order; none if nobody is called so."""
        return self._thread.run(self._calls.groups_of(name))

    def add(
        self,
        name: str,
        *,
        role: Role | str = Role.VIEWER,
        groups: Iterable[str] = (),
        password: str | None = None,
        reason: str = "",
        by: str | None = None,
    ) -> PersonRecord:
        """Let somebody use the stack, and return who that is.

        Args:
            name: letters, digits and `. _ @ + -`; it is the `by` of what that one orders. No two
                people differ by upper and lower case alone.
            role: `viewer`, `approver`, `operator` or `admin`.
            groups: those that approvals may name.
            password: 12 characters or more; None: there is none, and only a provider of OpenID
                Connect can vouch for that one. It needs the extra `web`.

        Raises:
            Mistake: a value is impossible.
            Trouble: there is somebody of that name, or there are too many people.
        """
        return self._thread.run(
            self._calls.add(name, role=role, groups=groups, password=password, reason=reason, by=by)
        )

    def remove(self, name: str, *, reason: str = "", by: str | None = None) -> None:
        """Let somebody use the stack no more: sessions and tokens are over at once.

        Raises:
            NotFound: nobody is called so.
            Trouble: it is the last admin.
        """
        return self._thread.run(self._calls.remove(name, reason=reason, by=by))

    def set_role(
        self, name: str, role: Role | str, *, reason: str = "", by: str | None = None
    ) -> bool:
        """Give somebody a role; return False if that one has it. All sessions of that one end.

        Raises:
            NotFound: nobody is called so.
            Mistake: there is no such role.
            Trouble: it is the last admin.
        """
        return self._thread.run(self._calls.set_role(name, role, reason=reason, by=by))

    def set_groups(
        self, name: str, groups: Iterable[str], *, reason: str = "", by: str | None = None
    ) -> bool:
        """Put somebody into these groups and no others; return False if all is so already.

        Raises:
            NotFound: nobody is called so.
            Mistake: a group cannot be called so.
        """
        return self._thread.run(self._calls.set_groups(name, groups, reason=reason, by=by))

    def set_password(
        self, name: str, password: str, *, reason: str = "", by: str | None = None
    ) -> None:
        """Give somebody a password of 12 characters or more. All sessions of that one end.

        Raises:
            NotFound: nobody is called so.
            Mistake: it is too short or too long, or the extra `web` is missing.
        """
        return self._thread.run(self._calls.set_password(name, password, reason=reason, by=by))

    def sign_in(self, name: str, password: str, *, address: str = "", agent: str = "") -> SignedIn:
        """Begin a session, whose secret shows from then on who somebody is.

        It is over after 7 days, or when it was not used for 12 hours, and when role or password of
        that one change. A refusal takes 0.75 s, and says the same whatever is wrong.

        Args:
            address: from where; 10 wrong passwords from one within 5 minutes, and it has to wait.
                Empty: nobody knows, and it does not.
            agent: what the program there calls itself.

        Raises:
            NotSignedIn: name and password do not go together, or too many were wrong before.
        """
        return self._thread.run(self._calls.sign_in(name, password, address=address, agent=agent))

    def one_time_link(self, *, by: str | None = None) -> str:
        """Return a secret that signs in once within 10 minutes, as an admin called as `by`.

        For who has started the stack on a machine and has no password there: `vigil up` prints it.
        """
        return self._thread.run(self._calls.one_time_link(by=by))

    def sign_in_by_link(self, secret: str, *, address: str = "", agent: str = "") -> SignedIn:
        """Begin a session with a secret of `one_time_link`.

        Raises:
            NotSignedIn: it is none, is over, or was used.
        """
        return self._thread.run(self._calls.sign_in_by_link(secret, address=address, agent=agent))

    def sign_in_vouched(self, vouched: Vouched, *, address: str = "", agent: str = "") -> SignedIn:
        """Begin a session of somebody whom a provider of OpenID Connect has vouched for.

        For who has checked that, as the console has. The first time, its subject is linked to the
        person of that name, who is added if there is none and the provider says a role.

        Raises:
            Trouble: that one may not use the stack; the error says why.
        """
        return self._thread.run(self._calls.sign_in_vouched(vouched, address=address, agent=agent))

    def identify(self, secret: str) -> Identity | None:
        """Return who shows a secret of a session or a token; None: nobody that may do anything.

        The answer is remembered for 5 s.
        """
        return self._thread.run(self._calls.identify(secret))

    def sign_out(self, secret: str) -> bool:
        """End the session of a secret; return False if there is none."""
        return self._thread.run(self._calls.sign_out(secret))

    def sessions(self, name: str) -> Sequence[SessionRecord]:
        """Return the sessions of somebody that are not over, the first one first."""
        return self._thread.run(self._calls.sessions(name))

    def end_sessions(
        self, name: str, session_id: str | None = None, *, reason: str = "", by: str | None = None
    ) -> bool:
        """End a session of somebody, or all (None); return False if there is none."""
        return self._thread.run(self._calls.end_sessions(name, session_id, reason=reason, by=by))

    def is_login_required(self) -> bool:
        """Return whether people have to sign in before they order something by a command."""
        return self._thread.run(self._calls.is_login_required())

    def require_login(
        self, *, is_required: bool = True, reason: str = "", by: str | None = None
    ) -> OrderOutcome:
        """Say whether people have to sign in before they order something by a command.

        Raises:
            Trouble: it is to be required, and there is no admin with a password.
        """
        return self._thread.run(
            self._calls.require_login(is_required=is_required, reason=reason, by=by)
        )

    def audit(
        self,
        *,
        name: str | None = None,
        change: OneOrMore | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[AuditEntry]:
        """Return who signed in, was refused, or changed what about people: the latest first.

        Args:
            name: only what is about somebody or some program, or was done by that one.
            change: such as `session_begun`, or several; None: any.
            after: the `next` of a page: only what follows it.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: there is no such change, or `after` is no such `next`.
        """
        return self._thread.run(
            self._calls.audit(name=name, change=change, after=after, reverse=reverse, limit=limit)
        )

    def views(self, *, by: str | None = None) -> Sequence[SavedView]:
        """Return the views of the console's lists that you have saved; nobody else sees them."""
        return self._thread.run(self._calls.views(by=by))

    def save_view(
        self, name: str, address: str, *, is_default: bool = False, by: str | None = None
    ) -> bool:
        """Save the address of a list under a name; return False if all is so already.

        It takes the place of a view of that list and that name, and is kept for you alone.

        Args:
            name: 1 to 80 characters.
            address: path and filters, such as `/episodes?status=failed`, of 2,000 characters at
                most. Where in the list and at which time a page is, is left out.
            is_default: whether the navigation of your console leads to it.

        Raises:
            Mistake: it is no list of the console, or a value is impossible.
            Trouble: you have 50 of them.
        """
        return self._thread.run(self._calls.save_view(name, address, is_default=is_default, by=by))

    def remove_view(self, page: str, name: str, *, by: str | None = None) -> bool:
        """Remove a view that you have saved of a list; return False if there is none.

        Args:
            page: the path of the list, such as `/episodes`.
        """
        return self._thread.run(self._calls.remove_view(page, name, by=by))

    def set_default_view(
        self, page: str, name: str | None = None, *, by: str | None = None
    ) -> bool:
        """Have the navigation of your console lead to a view; return False if it does already.

        Args:
            page: the path of the list, such as `/episodes`.
            name: that of the view; None: to the whole list.

        Raises:
            Mistake: there is no such view of it.
        """
        return self._thread.run(self._calls.set_default_view(page, name, by=by))


class SyncProjectionCalls:
    """The calls of `ProjectionCalls`, for programs that do not wait."""

    def __init__(self, calls: ProjectionCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def status(self) -> ProjectionsView:
        """Return how far the rows have followed each stream, and what rebuilds have left."""
        return self._thread.run(self._calls.status())

    def rebuild(
        self,
        *,
        keep: Duration = KEEP,
        most_per_s: float | None = None,
        dry_run: bool = False,
        anew: bool = False,
        own: Projection | None = None,
        tell: Callable[[RebuildProgress], None] | None = None,
    ) -> RebuildReport:
        """Make the rows anew beside those that people read, and swap those that differ.

        Nodes, projector and readers go on. A call that was killed is continued by the next one.

        Args:
            keep: how long to keep what was replaced; 0: not at all.
            most_per_s: read at most so many events per second.
            dry_run: say what would change, and change nothing.
            anew: begin anew what an earlier call has left unfinished.
            own: make the rows of this projection of your own anew, and not those of Vigil.
            tell: called now and then with how far it is.

        Raises:
            Mistake: `keep` or `most_per_s` cannot be meant.
            Trouble: another call is at it, or the tables are of another version.
        """
        return self._thread.run(
            self._calls.rebuild(
                keep=keep, most_per_s=most_per_s, dry_run=dry_run, anew=anew, own=own, tell=tell
            )
        )

    def verify(
        self,
        *,
        most_per_s: float | None = None,
        anew: bool = False,
        own: Projection | None = None,
        tell: Callable[[RebuildProgress], None] | None = None,
    ) -> VerifyReport:
        """Hold the rows against what the journal says, and return the first difference.

        The arguments are those of `rebuild`.

        Raises:
            Mistake: `most_per_s` cannot be meant.
            Trouble: another call is at it, the tables are of another version, or the rows do not
                follow the log.
        """
        return self._thread.run(
            self._calls.verify(most_per_s=most_per_s, anew=anew, own=own, tell=tell)
        )


class SyncRepairCalls:
    """The calls of `RepairCalls`, for programs that do not wait."""

    def __init__(self, calls: RepairCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def doctor(self) -> Sequence[DoctorCheck]:
        """Return what is as it must be, and what is not and how to repair it, servers included.

        Raises:
            Trouble: this client is on connections of somebody else, not on settings.
        """
        return self._thread.run(self._calls.doctor())

    def recover(
        self, *, stale_after_s: float = STALE_AFTER_S, dry_run: bool = False
    ) -> RecoverReport:
        """Restart episodes and instances of workflows that no node is running.

        The crash of a node is recovered without this call; it finds what even that has missed.

        Args:
            stale_after_s: how long they must have shown no progress, in seconds.
            dry_run: change nothing, and return what would be done.
        """
        return self._thread.run(self._calls.recover(stale_after_s=stale_after_s, dry_run=dry_run))

    def reconcile(
        self, *actors: str, dry_run: bool = False, reason: str = "", by: str | None = None
    ) -> Reconciled:
        """End what no live node declares any more, and start new schedules.

        Queued and running episodes go on, and actors that no node has stay as they are.

        Args:
            actors: only of these; without any, of all that a live node has.
            dry_run: change nothing, and return what would be done.

        Raises:
            NotFound: nodes are up, and nobody knows one of `actors`.
            Mistake: a text cannot be kept.
        """
        return self._thread.run(
            self._calls.reconcile(*actors, dry_run=dry_run, reason=reason, by=by)
        )

    def find_losses(self) -> StackLosses:
        """Return what a stack has lost whose log has lost its past. It changes nothing.

        Raises:
            Trouble: this client is on connections of somebody else, not on settings.
        """
        return self._thread.run(self._calls.find_losses())

    def accept_losses(
        self, found: StackLosses, *, reason: str = "", by: str | None = None
    ) -> Mapping[str, int]:
        """Go on without what `find_losses` has found; nodes may be started then.

        After an interruption it can be called again. Returns how many keys of each kind the gates
        got anew.

        Raises:
            Mistake: a text cannot be kept.
            Trouble: this client is on connections of somebody else, not on settings.
        """
        return self._thread.run(self._calls.accept_losses(found, reason=reason, by=by))


class SyncRetentionCalls:
    """The calls of `RetentionCalls`, for programs that do not wait."""

    def __init__(self, calls: RetentionCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def show(self) -> RetentionView:
        """Return how long things are kept, what is held, what is over due, and the last run."""
        return self._thread.run(self._calls.show())

    def run(self, *, dry_run: bool = False, by: str | None = None) -> RetentionOutcome:
        """Let go what is old now, and do not wait for the node that does so every hour.

        Args:
            dry_run: change nothing, and return what would be done.

        Raises:
            Trouble: a node is at it, or the rows do not show yet what the log has.
        """
        return self._thread.run(self._calls.run(dry_run=dry_run, by=by))

    def hold(
        self, kind: str, held: str, *, reason: str = "", unseen: bool = False, by: str | None = None
    ) -> OrderOutcome:
        """Hold something: nothing of it goes, however old it is, until it is released.

        Args:
            kind: `subject`, `actor` or `episode`.
            held: the subject's id alone, the actor, or the episode's id or its beginning.
            unseen: hold it though the tables have nothing of it.

        Raises:
            Mistake: there is no such kind, or nothing can be called so.
            NotFound: the tables have nothing of it.
            Trouble: it is held, and the rows do not know that yet; call it again.
        """
        return self._thread.run(self._calls.hold(kind, held, reason=reason, unseen=unseen, by=by))

    def release(
        self, kind: str, held: str, *, reason: str = "", by: str | None = None
    ) -> OrderOutcome:
        """Let go of what is held: it is kept for as long as everything else again.

        Args:
            held: as for `hold`; the beginning of an episode's id is enough, if it is one's alone.

        Raises:
            Mistake: there is no such kind, or nothing can be called so.
        """
        return self._thread.run(self._calls.release(kind, held, reason=reason, by=by))

    def holds(self) -> Sequence[RetentionHold]:
        """Return what is held, by whom and why."""
        return self._thread.run(self._calls.holds())


class SyncSignalCalls:
    """The calls of `SignalCalls`, for programs that do not wait."""

    def __init__(self, calls: SignalCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def send(
        self, ref: str, result: object = None, *, by: str | None = None, id: str | None = None
    ) -> PublishReceipt:
        """Publish the result of `ref` for all that wait for it, now or within an hour.

        Args:
            id: of the event, as for `client.publish`.

        Raises:
            Mistake: no engine would take it: `ref` has not 1 to 256 characters, or the result is no
                JSON, or over 256 KiB.
        """
        return self._thread.run(self._calls.send(ref, result, by=by, id=id))

    def resolve(
        self,
        ref: str,
        result: object = None,
        *,
        episode_id: UUID | str | None = None,
        by: str | None = None,
        wait_s: float | None = DECISION_S,
    ) -> Sequence[CommandOutcome]:
        """Give the episodes that wait for `ref` now its result; return what became of each.

        Args:
            episode_id: only this episode, by its id or so much of it that it is one; None: all.
            wait_s: how long to wait until that is on their journals, in seconds; None: not at all.

        Raises:
            Mistake: a value is impossible.
            NotFound: no episode has that id.
            Trouble: no episode waits for it.
        """
        return self._thread.run(
            self._calls.resolve(ref, result, episode_id=episode_id, by=by, wait_s=wait_s)
        )


class SyncTokenCalls:
    """The calls of `TokenCalls`, for programs that do not wait."""

    def __init__(self, calls: TokenCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def issue(
        self,
        name: str,
        *,
        role: Role | str = Role.VIEWER,
        scopes: Iterable[str] | None = None,
        expires_in: Duration = TOKEN_S,
        is_agent: bool = False,
        reason: str = "",
        by: str | None = None,
    ) -> NewToken:
        """Issue a token for a program, which does what it does as `token:<name>`.

        It may never do more than the person who issues it, and ends with that one. Programs never
        decide on approvals, whatever their role.

        Args:
            name: what the program is called; as for people.
            role: `viewer`, `approver`, `operator` or `admin`.
            scopes: what it is for, such as `read` or `events:publish`; None: all that its role may.
            expires_in: how long it is good, such as `"30d"`: from a minute to 366 days; by default
                90 days.
            is_agent: whether a model decides what is done with it.

        Raises:
            Mistake: a value is impossible.
            Trouble: `by` is one of the people, and may do less than that.
        """
        return self._thread.run(
            self._calls.issue(
                name,
                role=role,
                scopes=scopes,
                expires_in=expires_in,
                is_agent=is_agent,
                reason=reason,
                by=by,
            )
        )

    def revoke(self, token_id: str, *, reason: str = "", by: str | None = None) -> bool:
        """Revoke a token, for good; return False if it was. Programs have it for 5 s at most.

        Raises:
            NotFound: there is no such token.
        """
        return self._thread.run(self._calls.revoke(token_id, reason=reason, by=by))

    def list(
        self,
        *,
        is_good: bool | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[TokenSummary]:
        """Return tokens, the latest first, from the rows.

        Args:
            is_good: only those that were neither revoked nor have expired, or only the others.
            after: the `next` of a page: only what follows it.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: `after` is no such `next`.
        """
        return self._thread.run(
            self._calls.list(is_good=is_good, after=after, reverse=reverse, limit=limit)
        )


class SyncWorkflowCalls:
    """The calls of `WorkflowCalls`, for programs that do not wait."""

    def __init__(self, calls: WorkflowCalls, thread: LoopThread) -> None:
        self._calls, self._thread = calls, thread

    def find(self, id: UUID | str) -> UUID:
        """Return the id of an instance whose id alone begins so; a whole id is not looked up.

        Raises:
            Mistake: it can be no such id, or is the beginning of several.
            NotFound: there is no such instance.
        """
        return self._thread.run(self._calls.find(id))

    def list(
        self,
        *,
        status: OneOrMore | None = None,
        workflow: str | None = None,
        at: datetime | None = None,
        after: UUID | str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[WorkflowSummary]:
        """Return instances, and how far each is: the latest begun first.

        Args:
            status: `running`, `blocked`, `stopping`, `compensating`, `done`, `failed` or
                `canceled`, or several of them; None: any.
            at: as they were then; None: as they are. None where nobody knows any more, of one that
                has gone on since: what it had spent, and when it had last changed.
            after: the `next` of a page: what follows it. Or, without `at`, an id: what the list has
                after that instance.
            reverse: from the other end of the list: the first begun comes first.

        Raises:
            Mistake: there is no such `status`, or `at` has no time zone or is yet to come.
            NotFound: there is no instance of the id `after`.
        """
        return self._thread.run(
            self._calls.list(
                status=status, workflow=workflow, at=at, after=after, reverse=reverse, limit=limit
            )
        )

    def count(
        self, *, workflow: str | None = None, at: datetime | None = None
    ) -> Mapping[str, int]:
        """Return status → how many instances have it; with `at`, how many had it then.

        Raises:
            Mistake: `at` has no time zone or is yet to come.
        """
        return self._thread.run(self._calls.count(workflow=workflow, at=at))

    def get(self, id: UUID | str, *, at: datetime | None = None) -> WorkflowRecord:
        """Return one instance, and under `items` those of its steps, as far as rows have them.

        Args:
            at: as it was then; None: as it is. None where nobody knows any more: as for `list`, and
                of an item that was tried again since, that attempt.

        Raises:
            NotFound: the rows have no such instance, or had none by then.
            Mistake: `at` has no time zone or is yet to come.
        """
        return self._thread.run(self._calls.get(id, at=at))

    def read(self, id: UUID | str, *, at: datetime | None = None) -> Instance:
        """Return one instance as its journal has it; with `at`, as it had it then.

        Raises:
            NotFound: there is none, or there was none by then.
            Mistake: `at` has no time zone or is yet to come.
        """
        return self._thread.run(self._calls.read(id, at=at))

    def definitions(self) -> Sequence[Mapping[str, object]]:
        """Return the workflows that nodes have, or that were ever defined, in columns.

        They are `workflow_id`, `source`, `triggers`, `steps`, `nodes` and `problems` among others.
        """
        return self._thread.run(self._calls.definitions())

    def start(
        self,
        workflow: str,
        payload: JsonObject | None = None,
        *,
        reason: str = "",
        by: str | None = None,
        key: str | None = None,
        dry_run: bool = False,
        overrides: Overrides | None = None,
        step_overrides: Mapping[str, Overrides] | None = None,
    ) -> StartedInstance:
        """Request an instance, and watch for a moment whether it begins.

        Args:
            key: idempotency key: the same one starts no second instance.
            overrides: results that a dry run uses instead of calling tools.
            step_overrides: the same for single steps, by their names.

        Raises:
            NotFound: nodes are up, and nobody knows the workflow.
            Mistake: a value is impossible.
            Trouble: it is disabled, or no instance begins.
        """
        return self._thread.run(
            self._calls.start(
                workflow,
                payload,
                reason=reason,
                by=by,
                key=key,
                dry_run=dry_run,
                overrides=overrides,
                step_overrides=step_overrides,
            )
        )

    def wait(self, started: StartedInstance, *, timeout_s: float = WAIT_S) -> Instance:
        """Return an instance once it has ended.

        Raises:
            Trouble: it has not after `timeout_s`, or does not begin at all.
        """
        return self._thread.run(self._calls.wait(started, timeout_s=timeout_s))

    def retry(
        self,
        id: UUID | str,
        step: str,
        *,
        reason: str = "",
        by: str | None = None,
        wait_s: float | None = DECISION_S,
    ) -> CommandOutcome:
        """Try a paused step again, and return what became of that.

        Args:
            wait_s: how long to wait until it is on the journal, in seconds; None: not at all.

        Raises:
            Mistake: a value is impossible.
            NotFound: there is no such instance, or it has no such step.
            Trouble: the step is not paused.
        """
        return self._thread.run(self._calls.retry(id, step, reason=reason, by=by, wait_s=wait_s))

    def skip(
        self,
        id: UUID | str,
        step: str,
        *,
        reason: str = "",
        by: str | None = None,
        wait_s: float | None = DECISION_S,
    ) -> CommandOutcome:
        """Go on without a paused step; arguments and errors are as for `retry`."""
        return self._thread.run(self._calls.skip(id, step, reason=reason, by=by, wait_s=wait_s))

    def cancel(
        self,
        id: UUID | str,
        *,
        reason: str = "",
        by: str | None = None,
        wait_s: float | None = DECISION_S,
    ) -> CommandOutcome:
        """Cancel an instance: running steps end, and finished ones are compensated.

        What is returned is as for `retry`.

        Raises:
            Mistake: a text cannot be kept.
            NotFound: there is no such instance.
            Trouble: it has ended, or is being canceled already.
        """
        return self._thread.run(self._calls.cancel(id, reason=reason, by=by, wait_s=wait_s))
