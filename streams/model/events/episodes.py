"""The life of an episode. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from streams.json import NOTHING, JsonObject
from streams.model.children import ChildEnd, ChildStart
from streams.model.findings import FindingIntent, FindingOutcome
from streams.model.money import NO_USD
from streams.model.outputs import OutputIntent, OutputOutcome
from streams.model.service_levels import LevelOutcome, ServiceLevel
from streams.model.struct import Event, Struct
from streams.model.triggers import (
    AdaptiveBudget,
    Budget,
    LogStrategy,
    Mode,
    Overrides,
    PublicEvents,
    Trigger,
    requester,
)
from streams.model.waits import Approval, Wait


class CallAgain(Struct, frozen=True, kw_only=True):
    """A call that a person has made again: it is known by the key that it was announced with."""

    call: str
    """Its path in a function, its turn in a class."""
    fingerprint: str
    idempotency_key: str


class Fork(Struct, frozen=True, kw_only=True):
    """Which past an episode began with."""

    episode_id: str
    """The episode whose past it is."""
    step_no: int
    """The last step of it that it has, too: 0 for none."""
    by: str
    """Who asked for it."""
    reason: str = ""
    seed: str = ""
    """What its function draws with: the id of the first episode of the line; empty: its own."""
    settled: str = ""
    """What a person said of a call of unknown outcome: `happened`, `not_happened` or `again`. The
    step after the past is then its outcome, unless it is made again. Empty: nothing."""
    again: CallAgain | None = None


class EpisodeOpened(Event, frozen=True, kw_only=True, tag="episode.opened@1"):
    """A trigger passed the gate: an actor has something to do."""

    episode_id: str
    actor_id: str
    expectation_id: str
    trigger: Trigger
    dedupe_key: str
    budget: Budget
    spec_rev: str = ""
    subject_kind: str = ""
    """The expectation's `subject_key`; the value is the trigger's `entity_id`."""
    generation: int = 0
    mode: Mode = Mode.LIVE
    overrides: Overrides | None = None
    """Of a dry run."""
    priority: int = 0
    """The higher, the sooner its turn comes, where episodes wait for one."""
    opened_by: str = ""
    """The node whose gate it passed; empty: a person's doing."""
    is_request: bool = False
    """Whether that node asked for it only, and leaves running it to others."""
    in_lane: bool = False
    """Whether the lane of its actor has it started; otherwise a command to start it follows."""
    start_by: datetime | None = None
    """Not begun by then, it is canceled; None: it waits for as long as it takes."""
    revision: int = 0
    """Of the definition that its actor was made of; 0: the actor is declared in code."""
    metadata: JsonObject = msgspec.field(default_factory=dict)
    """What whoever fired it says of it, for people and queries."""
    log_strategy: LogStrategy = LogStrategy.FULL_DEBUG
    public_events: PublicEvents = PublicEvents.ALL
    fork: Fork | None = None
    """Of an episode that began with the past of another one: its steps follow in this commit."""
    service_level: ServiceLevel | None = None
    """What its expectation promised when it was opened; None: nothing."""
    adaptive_budget: AdaptiveBudget | None = None
    """Bounds within which its budget followed what earlier episodes used. What it uses counts for
    later ones. None: its budget is fixed, and it does not count."""
    holds_subject: bool = False
    """Whether no other episode of its subject starts before it has ended."""
    held_by: str = ""
    """The episode after whose end it starts; empty: it starts at once."""
    cooldown_s: int = 0
    """How long nothing else of its subject fires its expectation since then; 0: it began none."""
    attempts_max: int = 0
    """Crashes that end it, as whoever fired it has said; 0: as many as its expectation says."""


class EpisodeStarted(Event, frozen=True, kw_only=True, tag="episode.started@1"):
    """A node has it. Also the fence: the node that had it before can no longer append."""

    node: str
    attempt: int
    """1 for the first start, +1 for each one after it: a takeover, after a wait, after a stop."""
    claim_revision: int = 0
    """The claim's revision in its bucket: the fencing token. Where the lease of its node stands for
    it, the newest revision of any claim that the node knew: a claim that lapsed before was of an
    older attempt, whose start nobody sees. 0: the same commit has the end."""
    node_lease_since: datetime | None = None
    """When its node acquired the lease that stood for a claim; None: none did."""
    fresh: bool = False
    """Whether the strategy begins anew: what was recorded before is kept and not folded."""
    alone: bool = False
    """Whether the node's process runs nothing else: its crash is that of this episode."""
    code: str = ""
    """A digest of the code that it runs there; empty: the node has none for it, and only carries
    out what was decided."""


class EpisodeLeft(Event, frozen=True, kw_only=True, tag="episode.left@1"):
    """Its node is going down and calls for another one. Not a crash: the attempt does not count."""

    node: str
    wall_used_ms: int = 0
    """See `StepRecorded`."""


class StepKind(StrEnum):
    """What a step did."""

    TOOL_CALL = "tool_call"
    SYNTHESIS = "synthesis"
    OBSERVATION = "observation"
    CHECKPOINT = "checkpoint"
    OUTPUT = "output"
    REPORT = "report"
    EPISODE = "episode"
    """Another episode, its child, has run."""
    MODEL_REQUEST = "model_request"
    """An agent has asked its model."""
    AGENT = "agent"
    """An agent has ended; what it did before are steps of their own."""
    APPROVAL = "approval"
    WAIT = "wait"


class StepAnnounced(Event, frozen=True, kw_only=True, tag="episode.step_announced@1"):
    """A side effect is about to happen. Until a `StepRecorded` follows, nobody knows if it did."""

    step_no: int
    fingerprint: str
    tool_name: str
    """`capability.action`; of an output, `output.<type>`; of a request to a model, the agent, and
    empty if a synthesizer is asked."""
    idempotency_key: str
    output_key: str = ""
    """The output that is about to be proposed, where it is one."""
    path: str = ""
    """Where the strategy asked for it: in a function such as `4.2.1`, in a class its turn."""
    until: datetime | None = None
    """When the sleep ends that has begun, if it is one: nothing outside depends on it."""
    findings: tuple[FindingIntent, ...] = ()
    """The findings that are about to be applied, if it is a report."""
    finding_no: int = 0
    """The number of the first of them among all intents of the episode, from 0."""
    child: ChildStart | None = None
    """The episode that is about to be started, if it is one."""
    reserved_usd: Decimal | None = None
    """The most that a request to a model can cost, if it is one; it is used until the request is
    recorded with what it has cost."""

    @property
    def is_call(self) -> bool:
        """Whether it is of a tool, so that only the tool knows what has happened.

        Sleeps, outputs, reports and children are carried on by the next node, from what is recorded
        here; a request to a model is made again.
        """
        is_carried_on = self.until is not None or self.output_key or self.findings or self.child
        return not is_carried_on and self.asks is None

    @property
    def asks(self) -> StepKind | None:
        """Return which kind of request to a model it is of; None: of none."""
        if self.reserved_usd is None:
            return None
        return StepKind.MODEL_REQUEST if self.tool_name else StepKind.SYNTHESIS


class StoredResult(Struct, frozen=True, kw_only=True):
    """Where a result is that no commit can hold: in the object store."""

    digest: str
    """SHA-256 of the JSON, in hex."""
    size_bytes: int


class KeptJson(Struct, frozen=True, kw_only=True):
    """JSON that is here, or in the object store if it is large or the same for many."""

    json: msgspec.Raw = NOTHING
    stored: StoredResult | None = None
    """Where it is; None: in `json`."""
    was_away: bool = False
    """Whether it is nowhere: the object store was away."""


class KeptPrompt(Struct, frozen=True, kw_only=True):
    """What is kept of a request to a model, so that it can be told what was asked."""

    agent: KeptJson | None = None
    """The agent as it asked: an `AgentVersion`. None: it is too large."""
    after: int = 0
    """How many of the messages of the request before are at its beginning."""
    messages: KeptJson | None = None
    """Those that follow, as people may see them. None: they may not, or they are too large."""


AGAIN: Final = ".0."
"""Separates the path of a call from the number of a pause or later attempt."""


GRANTED: Final = "granted:"
"""Begins the path of the step that has what people have granted beyond the budget; the number of
the step follows. No call of the strategy has asked for it."""


GRANT_TOOL: Final = "budget"
"""What that step has as its tool."""


Position: TypeAlias = tuple[tuple[int, int, int, str], ...]
"""Orders calls by where they were asked for."""


def position_of(path: str) -> Position:
    """Return what orders calls by their paths: numbers by value, and parts of an agent by run step.

    Within a step, the request comes before what its answer calls.
    """
    return tuple(map(_position_of_word, path.split(".")))


def request_of(path: str) -> int:
    """Return the run step of its agent that a part belongs to; 0: it is no part of an agent."""
    return next((step for step, kind, *_ in reversed(position_of(path)) if kind), 0)


def requester_of(opened: EpisodeOpened) -> str:
    """Return who asked for an episode; empty: nobody did, or nobody knows."""
    return opened.fork.by if opened.fork is not None else requester(opened.trigger)


_PART: Final = re.compile(r"([a-z])(\d*)(?:-(\d+))?")
"""A part of an agent in a path: `m2`, `t2-1`."""

_KINDS: Final = ".mvdt"
"""Parts in the order in which they come: a request, the check of a call, its approval, itself."""


def _position_of_word(word: str) -> tuple[int, int, int, str]:
    part = _PART.match(word)
    if part is None:
        return int(word), 0, 0, ""
    kind, step, place = part.groups()
    rank = _KINDS.find(kind)
    return int(step or 0), rank if rank > 0 else len(_KINDS), int(place or 0), word


class StepRecorded(Event, frozen=True, kw_only=True, tag="episode.step_recorded@1"):
    """A step is done and is never executed again: a replay folds `result` instead."""

    step_no: int
    """1-based, gapless within an episode."""
    kind: StepKind
    fingerprint: str
    """SHA-256 of the action, in hex."""
    tool_name: str = ""
    """`capability.action` of a tool call."""
    args: msgspec.Raw = NOTHING
    """As people may see them: redacted, without transient values."""
    result: msgspec.Raw = NOTHING
    """As `handle_result` got it, and gets it again in a replay."""
    result_shown: msgspec.Raw = NOTHING
    """As people may see it, where that differs from `result`."""
    is_hidden: bool = False
    """Whether people may see nothing of the result."""
    error_class: str = ""
    error_detail: str = ""
    cost_tokens: int = 0
    """Model tokens, input and output together, as the budget counts them."""
    input_tokens: int = 0
    output_tokens: int = 0
    """The two apart, as the synthesizer has reported them; both 0: it has not, and `cost_tokens` is
    its estimate. Those of a child are not told apart."""
    cached_tokens: int = 0
    """Of the input, those that the provider had from earlier requests."""
    reasoning_tokens: int = 0
    """Of the output, those that the model has thought with."""
    cost_usd: Decimal | None = None
    """What a request to a model has cost, by the price of that moment; None: nobody knows, or it is
    no such request."""
    agent: str = ""
    """The name of the agent that has asked for it, and the digest of its prompt, tools, settings
    and model: `triage:5c1f…`; empty: none has."""
    cost_ms: int = 0
    model: str = ""
    is_override: bool = False
    """Whether an override of a dry run stands for its result, or its failure."""
    path: str = ""
    """Where the strategy asked for it; see `StepAnnounced`. A failed call `3` is repeated at
    `3.0.1`, a pause, `3.0.2`, the second attempt, `3.0.3`, another pause, and so on. What the agent
    of call `4` does in its second run step is at `4.m2.1`, the request to the model, and at
    `4.t2-1.1`, the first call of the first tool that the model has called."""
    retry_s: float = 0.0
    """How long the pause before the next attempt is, in seconds, if it failed and is repeated; 0:
    it is not."""
    stored: StoredResult | None = None
    """Where the result is; None: in `result`."""
    wall_used_ms: int = 0
    """How long the episode had run until then, over all attempts: of branches at the same time, the
    time counts once. What its children have run is added."""
    child: ChildEnd | None = None
    """The child that has ended, if it is the end of one; None, too, if there never was one."""
    prompt: KeptPrompt | None = None
    """What is kept of what a model was asked; None: nothing, or it is no such request."""

    @property
    def is_turn(self) -> bool:
        """Whether it counts for the budget.

        Pauses, repeated attempts, ends of agents and grants of people do not.
        """
        # guard: attempts-are-no-turns
        is_first = AGAIN not in self.path and self.kind is not StepKind.AGENT
        return is_first and not self.is_grant  # guard: grant-is-no-turn

    @property
    def is_grant(self) -> bool:
        """Whether it has what people have granted beyond the budget, or why they have not."""
        return self.path.startswith(GRANTED)

    @property
    def turns(self) -> int:
        """How many turns it counts for the budget: those of a child, too."""
        return self.is_turn + (self.child.turns if self.child is not None else 0)

    @property
    def is_request(self) -> bool:
        """Whether it is a request to a model, whose cost counts as the most if nobody knows it."""
        # guard: synthesis-costs
        return self.kind is StepKind.MODEL_REQUEST or self.kind is StepKind.SYNTHESIS

    @property
    def usd(self) -> Decimal:
        """What it counts for the budget: what it has cost, and what a child has spent."""
        spent = self.child.usd if self.child is not None else NO_USD  # guard: child-usd-counts
        return spent if self.cost_usd is None else self.cost_usd + spent


class CheckpointSaved(Event, frozen=True, kw_only=True, tag="episode.checkpoint_saved@1"):
    """The strategy asked for its state to be kept; a replay starts from the newest."""

    checkpoint_no: int
    step_no: int
    """The checkpoint's own step: a replay folds the steps after it."""
    phase: str
    state: msgspec.Raw
    """The state as `handle_result` left it, so that a resume does not repeat the checkpoint."""
    schema_version: int = 1


class EpisodeConverged(Event, frozen=True, kw_only=True, tag="episode.converged@1"):
    """The strategy decided what is true. Its findings and outputs are carried out later."""

    classification: msgspec.Raw = NOTHING
    confidence: float | None = None
    """0.0 to 1.0."""
    summary: str = ""
    findings: tuple[FindingIntent, ...] = ()
    outputs: tuple[OutputIntent, ...] = ()
    result: msgspec.Raw = NOTHING
    """What a workflow's step brings; `null`: what the fields above say."""
    metadata: JsonObject = msgspec.field(default_factory=dict)
    """What the strategy says of it, for people and queries; added to the opening's."""
    exhausted: str = ""
    """How the budget was used up, if that was why it converged; empty: it was not."""
    raises_nothing: bool = False
    """Whether its findings are left out, since it is a dry run that keeps none."""
    sends_nothing: bool = False
    """Whether its outputs are left out, since it is a dry run."""
    wall_used_ms: int = 0
    """See `StepRecorded`."""


class BlockReason(StrEnum):
    """What an episode is blocked by."""

    APPROVAL = "approval"
    WAIT = "wait"
    NONDETERMINISTIC_REPLAY = "nondeterministic_replay"
    """It is parked: the code of its node takes another way than the one that was recorded."""


class Parked(Struct, frozen=True, kw_only=True):
    """Why an episode waits for other code."""

    number: int
    """1 for the first time that it was parked."""
    how: str
    """What was recorded, what the replay asks for, and what people can do."""
    codes: tuple[str, ...]
    """Digests of the code by which the replay differs; see `EpisodeStarted`."""


class EpisodeBlocked(Event, frozen=True, kw_only=True, tag="episode.blocked@1"):
    """It waits for someone outside; no node has it. Its state is in the commit's checkpoint."""

    step_no: int
    """The step that the answer will be: 1-based, the next one."""
    reason: BlockReason
    fingerprint: str
    approval: Approval | None = None
    wait: Wait | None = None
    path: str = ""
    """Where the strategy asked for it; see `StepAnnounced`."""
    ahead: tuple[str, ...] = ()
    """References of other signals that branches of the function wait for meanwhile."""
    parked: Parked | None = None
    """If it waits for other code: then no step is its answer."""
    for_children: bool = False
    """Whether branches wait for children, too: those that are announced."""
    wall_used_ms: int = 0
    """See `StepRecorded`."""

    @property
    def asks_for_grant(self) -> bool:
        """Whether people are asked to grant more than the budget."""
        return self.path.startswith(GRANTED)


class EpisodeApprovalGiven(Event, frozen=True, kw_only=True, tag="episode.approval_given@1"):
    """Somebody has approved what an episode asks, and others have to as well: it waits on."""

    step_no: int
    by: str
    reason: str = ""
    decision_id: str = ""
    blocked: EpisodeBlocked
    """What it waits for from now on, with all approvals so far."""
    since: datetime
    """When it began to wait."""


class Resolution(StrEnum):
    """How a block ended."""

    APPROVED = "approved"
    DENIED = "denied"
    RESOLVED = "resolved"
    """Of a wait: its signal has come."""
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    """Approved for an older episode with an equal request, which acts in the place of this one."""
    RETRIED = "retried"
    """It was parked, and other code is there."""


class EpisodeResolved(Event, frozen=True, kw_only=True, tag="episode.resolved@1"):
    """It need not wait any more: the step before this, in the same commit, is the answer.

    What ends the wait for other code is no step.
    """

    step_no: int
    resolution: Resolution
    by: str = ""
    """Who answered; empty: nobody has."""
    reason: str = ""
    decision_id: str = ""
    """Of the request that it follows: an answer of the same id is the same answer."""
    edited_hash: str = ""
    """SHA-256 of what was approved in the place of the plan; empty: the plan as it was."""
    request_no: int = 0
    """As in `Decide`; 0: the decision was for this episode alone, or on another one."""
    acting_episode_id: str = ""
    """If it is superseded: the episode that acts."""
    park_no: int = 0
    """If it was parked: the number of that time."""


class EpisodeDeferred(Event, frozen=True, kw_only=True, tag="episode.deferred@1"):
    """What it decided is carried out but for outputs that are to be delivered, or approved, later.

    No node has it meanwhile. It ends once all of them are settled.
    """

    findings: tuple[FindingOutcome, ...] = ()
    outputs: tuple[OutputOutcome, ...] = ()
    """Those that are settled."""
    pending: tuple[str, ...] = ()
    """Keys of the others."""


class EndStatus(StrEnum):
    """How an episode ended."""

    DONE = "done"
    FAILED = "failed"
    PARTIALLY_FAILED = "partially_failed"
    CANCELED = "canceled"


class EpisodeFinished(Event, frozen=True, kw_only=True, tag="episode.finished@1"):
    """The one terminal event."""

    status: EndStatus
    turns_used: int = 0
    """Turns that count for its budget; a conclusion is one, too."""
    tokens_used: int = 0
    usd_used: Decimal = NO_USD
    """What its requests to models have cost, as far as that is known, and its children."""
    error_class: str = ""
    error_detail: str = ""
    findings: tuple[FindingOutcome, ...] = ()
    outputs: tuple[OutputOutcome, ...] = ()
    wall_used_ms: int = 0
    """How long it ran, over all attempts; see `StepRecorded`."""
    service_level: LevelOutcome | None = None
    """Whether what was promised was kept; None: nothing was, or the episode does not count."""


EpisodeEvent: TypeAlias = (
    EpisodeOpened
    | EpisodeStarted
    | EpisodeLeft
    | StepAnnounced
    | StepRecorded
    | CheckpointSaved
    | EpisodeBlocked
    | EpisodeApprovalGiven
    | EpisodeResolved
    | EpisodeConverged
    | EpisodeDeferred
    | EpisodeFinished
)
