"""Everything that can happen, as data. Read this package first.

An aggregate (an episode, a finding, an output, a lane, a workflow instance, a definition, the
signals of a reference, what people order of one thing, who may use the stack, a dead letter) is one
subject on the log, and its life is a sequence of commits; a commit is one message with one or more
of these events. A tag is the event's name on the wire, with its version: it is never changed and
never reused. Fields may be added with a default, and a default never changes. A changed meaning is
a new tag (docs/adr/0001-wire-format.md). `msgspec.Raw` fields are JSON that the engine does not
read.
"""

from typing import TypeAlias

from streams.model.events.dead_letters import (
    PAYLOAD_KEPT_BYTES_MAX,
    DeadDiscarded,
    DeadEvent,
    DeadLettered,
    DeadRequeued,
)
from streams.model.events.definitions import (
    DefinitionApplied,
    DefinitionDisabled,
    DefinitionEvent,
    DefinitionKind,
)
from streams.model.events.episodes import (
    AGAIN,
    GRANT_TOOL,
    GRANTED,
    BlockReason,
    CallAgain,
    CheckpointSaved,
    EndStatus,
    EpisodeApprovalGiven,
    EpisodeBlocked,
    EpisodeConverged,
    EpisodeDeferred,
    EpisodeEvent,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeResolved,
    EpisodeStarted,
    Fork,
    KeptJson,
    KeptPrompt,
    Parked,
    Position,
    Resolution,
    StepAnnounced,
    StepKind,
    StepRecorded,
    StoredResult,
    position_of,
    request_of,
    requester_of,
)
from streams.model.events.findings import (
    FindingAcknowledged,
    FindingCleared,
    FindingClearedByHand,
    FindingEscalated,
    FindingEvent,
    FindingExpired,
    FindingNoted,
    FindingRaised,
    FindingUpdated,
)
from streams.model.events.lanes import LaneEvent, LaneKept, LaneMoved
from streams.model.events.orders import (
    ActorPaused,
    ActorResumed,
    BreakerReset,
    HoldAdded,
    HoldRemoved,
    KindsEncrypted,
    LayoutSet,
    LoginRequired,
    LoginWaived,
    NodeModeSet,
    NodeModeUnset,
    OrderEvent,
    RetentionDeclared,
    RowsCut,
    SubjectErased,
)
from streams.model.events.outputs import (
    OutputApprovalGiven,
    OutputApproved,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputEvent,
    OutputFailed,
    OutputForgone,
    OutputPostponed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
)
from streams.model.events.people import (
    GroupsSet,
    IdentityLinked,
    LinkEvent,
    LinkIssued,
    LinkUsed,
    LoginEvent,
    LoginKept,
    PasswordSet,
    PersonAdded,
    PersonEvent,
    PersonRemoved,
    RoleSet,
    RosterEvent,
    SessionBegun,
    SessionEnded,
    SessionUsed,
    SignInRefused,
    TokenEvent,
    TokenIssued,
    TokenRevoked,
    ViewsSaved,
)
from streams.model.events.signals import SignalEvent, SignalGiven, SignalWaited
from streams.model.events.workflows import (
    CompensationBegun,
    CompensationEnded,
    StepApprovalAsked,
    StepApprovalGiven,
    StepApproved,
    StepBegun,
    StepDenied,
    StepEnded,
    StepPaused,
    StepPostponed,
    StepPrepared,
    StepReused,
    StepSkipped,
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowEvent,
    WorkflowFinished,
    WorkflowResumed,
    WorkflowStarted,
)

LogEvent: TypeAlias = (
    EpisodeEvent
    | FindingEvent
    | OutputEvent
    | LaneEvent
    | WorkflowEvent
    | DefinitionEvent
    | SignalEvent
    | OrderEvent
    | PersonEvent
    | DeadEvent
)
