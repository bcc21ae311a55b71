"""Every subject and durable name. No other module spells one. Pure.

<stack>.event.<name…>                    stream <stack>-events    what happened in the world
<stack>.inbox.episode.<actor>.<id>       stream <stack>-work      calls to run an episode
<stack>.inbox.attend.<actor>.<id>        stream <stack>-work      people's commands to an episode
<stack>.inbox.workflow.<name>.<id>       stream <stack>-work      commands to an instance
<stack>.timer.<actor>.<purpose>.<key>    stream <stack>-work      the timers that are pending
<stack>.due.<actor>                      stream <stack>-work      the timers that have fired
<stack>.episode.<id>                     stream <stack>-journal   an episode's life, in order
<stack>.finding.<key>                    stream <stack>-state     a finding's life, in order
<stack>.output.<key>                     stream <stack>-journal   an output's life, in order
<stack>.lane.<actor>                     stream <stack>-state     who waits for a turn, in order
<stack>.workflow.<id>                    stream <stack>-journal   an instance's life, in order
<stack>.definition.<kind and id>         stream <stack>-state     a definition's life, in order
<stack>.signal.<reference>               stream <stack>-state     who waits for it, and its signals
<stack>.order.<what it is about>         stream <stack>-state     what people order, in order
<stack>.person.<whom it is about>        stream <stack>-state     who may use the stack, in order
<stack>.dead.<origin>.<cause>            stream <stack>-dead      what could not be done, and why
<stack>.refusal.<actor>.<expectation>    stream <stack>-refusals  why events did not fire it
<stack>.stream.<episode>                 in no stream             what its models answer, live

Names of streams and buckets are spelled in `layout.py`, keys of buckets in `keys.py`.

A stack may spread its journal, its state and its work over N streams each, its partitions. The
partition of an aggregate follows from its kind and key alone, and a token names it, here the third
of four; streams of other layouts share no subject with these:

<stack>.inbox.2of4.episode.<actor>.<id>  stream <stack>-work-2of4
<stack>.due.2of4.<actor>                 stream <stack>-work-2of4
<stack>.episode.2of4.<id>                stream <stack>-journal-2of4
<stack>.finding.0of4.<key>               stream <stack>-state-0of4

Names that people choose for code (actors, events) are tokens as they are; keys that data chooses
(findings, timers) are encoded: see `tokens.py`. What cannot be a name or a key is a `BadName`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from streams.errors import BadName
from streams.layout import Kind, Layout, Stream
from streams.tokens import (
    as_subject_token,
    decode_token,
    encode_token,
    event_name,
    name,
    subject_token,
)

_KINDS: Final = frozenset(Kind)


def stack_of(subject: str) -> Stack:
    """Return the stack that `subject` belongs to."""
    return Stack(subject.partition(".")[0])


class Stack(Layout, frozen=True):
    """One logical cluster. Its name is the first token of every subject."""

    # The world.

    def event(self, name: str) -> str:
        """Return the subject of the domain event `name`."""
        return f"{self.name}.event.{event_name(name)}"

    def every_event(self) -> str:
        """Return the filter for every domain event."""
        return f"{self.name}.event.>"

    def event_name_of(self, subject: str) -> str:
        """Return the name of the domain event published on `subject`."""
        return subject.removeprefix(f"{self.name}.event.")

    def gate_durable(self, actor: str) -> str:
        """Return the durable consumer that all gates of `actor` share."""
        return f"gate-{name(actor, of='actor')}"

    def feed_durable(self, actor: str, subject: str) -> str:
        """Return the durable consumer of all gates of `actor` on `subject` of a foreign stream.

        Neither stacks, actors nor subjects share one.
        """
        actor = name(actor, of="actor")
        mark = blake2b(f"{self.name}/{actor}/{subject}".encode(), digest_size=8).hexdigest()
        return f"{self.name}-{actor}-{mark}"

    # The work.

    def every_inbox(self, partition: int = 0) -> str:
        """Return the filter for every command in one partition."""
        return f"{self.name}.inbox.{self._work_within(partition)}>"

    def episode_inbox(self, actor: str, episode_id: str) -> str:
        """Return the subject of commands to one episode."""
        within = self._within(Kind.EPISODE, episode_id)
        return f"{self.name}.inbox.{within}episode.{name(actor, of='actor')}.{episode_id}"

    def actor_inbox(self, actor: str, partition: int = 0) -> str:
        """Return the filter for commands to every episode of `actor` in one partition."""
        within = self._work_within(partition)
        return f"{self.name}.inbox.{within}episode.{name(actor, of='actor')}.*"

    def inbox_durable(self, actor: str) -> str:
        """Return the durable consumer that all runners of `actor` share."""
        return f"inbox-{name(actor, of='actor')}"

    def attending_inbox(self, actor: str, episode_id: str) -> str:
        """Return the subject of people's commands to one episode."""
        within = self._within(Kind.EPISODE, episode_id)
        return f"{self.name}.inbox.{within}attend.{name(actor, of='actor')}.{episode_id}"

    def attending_inboxes(self, actor: str, partition: int = 0) -> str:
        """Return the filter for people's commands to every episode of `actor` in one partition."""
        within = self._work_within(partition)
        return f"{self.name}.inbox.{within}attend.{name(actor, of='actor')}.*"

    def attending_durable(self, actor: str) -> str:
        """Return the durable consumer that all nodes share for these."""
        return f"attend-{name(actor, of='actor')}"

    def workflow_inbox(self, workflow: str, instance_id: str) -> str:
        """Return the subject of commands to one instance of `workflow`."""
        within = self._within(Kind.WORKFLOW, instance_id)
        return f"{self.name}.inbox.{within}workflow.{name(workflow, of='workflow')}.{instance_id}"

    def workflow_inboxes(self, workflow: str, partition: int = 0) -> str:
        """Return the filter for commands to every instance of `workflow` in one partition."""
        within = self._work_within(partition)
        return f"{self.name}.inbox.{within}workflow.{name(workflow, of='workflow')}.*"

    def workflow_durable(self, workflow: str) -> str:
        """Return the durable consumer that all nodes of `workflow` share."""
        return f"workflow-{name(workflow, of='workflow')}"

    def timer(self, actor: str, purpose: str, key: str) -> str:
        """Return the subject of one timer while it is pending."""
        names = f"{name(actor, of='actor')}.{name(purpose, of='purpose')}"
        token = encode_token(key)
        within = self._work_within(self.timer_partition(actor, purpose, key))
        return f"{self.name}.timer.{within}{names}.{token}"

    def timers_of(self, actor: str, purpose: str, partition: int = 0) -> str:
        """Return the filter for every pending timer of one purpose in one partition."""
        names = f"{name(actor, of='actor')}.{name(purpose, of='purpose')}"
        return f"{self.name}.timer.{self._work_within(partition)}{names}.*"

    def due(self, actor: str, partition: int = 0) -> str:
        """Return the subject that timers of `actor` in one partition fire into."""
        return f"{self.name}.due.{self._work_within(partition)}{name(actor, of='actor')}"

    def due_of(self, timer: str) -> str:
        """Return the subject that the timer at the subject `timer` fires into."""
        stack, _, *home, _, _ = timer.split(".")
        return ".".join((stack, "due", *home))

    def due_durable(self, actor: str) -> str:
        """Return the durable consumer of due timers that all nodes of `actor` share."""
        return f"due-{name(actor, of='actor')}"

    def every_timer(self, partition: int = 0) -> str:
        """Return the filter for every pending timer in one partition."""
        return f"{self.name}.timer.{self._work_within(partition)}>"

    def every_due(self, partition: int = 0) -> str:
        """Return the filter for every timer in one partition that has fired."""
        return f"{self.name}.due.{self._work_within(partition)}>"

    def timer_of(self, subject: str) -> tuple[str, str, str] | None:
        """Return actor, purpose and key of the timer at `subject`; None if that is no timer's."""
        if not subject.startswith(f"{self.name}.timer."):
            return None
        actor, purpose, token = subject.split(".")[-3:]
        timer = actor, purpose, decode_token(token)
        if self.timer(*timer) != subject:
            raise BadName(f"no timer is at {subject!r}")
        return timer

    def actor_of_due(self, subject: str) -> str:
        """Return the actor whose timers fire into `subject`."""
        actor = subject.rpartition(".")[2]
        if subject not in {self.due(actor, each) for each in self.partitions_of(Stream.WORK)}:
            raise BadName(f"no timer fires into {subject!r}")
        return actor

    # What did not fire.

    def refusal(self, actor: str, expectation: str) -> str:
        """Return the subject of the refusals of one expectation."""
        names = f"{name(actor, of='actor')}.{name(expectation, of='expectation')}"
        return f"{self.name}.refusal.{names}"

    def refusals_of(self, actor: str = "") -> str:
        """Return the filter for the refusals of `actor`; empty: of all."""
        return f"{self.name}.refusal.{name(actor, of='actor') + '.*' if actor else '>'}"

    # What is told and not stored.

    def deltas(self, episode_id: str) -> str:
        """Return the subject of what the models of one episode answer, while they do."""
        return f"{self.name}.stream.{episode_id}"

    # The journal and the state: one exact subject per aggregate.

    def episode(self, episode_id: str) -> str:
        """Return the subject of one episode's life."""
        return f"{self.name}.episode.{self._within(Kind.EPISODE, episode_id)}{episode_id}"

    def finding(self, key: str) -> str:
        """Return the subject of one finding's life."""
        token = encode_token(key)
        return f"{self.name}.finding.{self._within(Kind.FINDING, key)}{token}"

    def output(self, key: str) -> str:
        """Return the subject of one output's life."""
        token = encode_token(key)
        return f"{self.name}.output.{self._within(Kind.OUTPUT, key)}{token}"

    def lane(self, actor: str) -> str:
        """Return the subject of the lane of `actor`, whose episodes wait for their turn."""
        return f"{self.name}.lane.{self._within(Kind.LANE, actor)}{name(actor, of='actor')}"

    def workflow(self, instance_id: str) -> str:
        """Return the subject of the life of one instance of a workflow."""
        return f"{self.name}.workflow.{self._within(Kind.WORKFLOW, instance_id)}{instance_id}"

    def definition(self, key: str) -> str:
        """Return the subject of the life of a definition; for its key see `definition_key`."""
        return f"{self.name}.definition.{self._within(Kind.DEFINITION, key)}{encode_token(key)}"

    def signal(self, ref: str) -> str:
        """Return the subject of the signals of one reference, and of the waits for them."""
        return self._signal(subject_token(ref))

    def _signal(self, token: str) -> str:
        return f"{self.name}.signal.{self._within(Kind.SIGNAL, token)}{token}"

    def order(self, key: str) -> str:
        """Return the subject of what people order of the thing with this key: see `keys`."""
        return f"{self.name}.order.{self._within(Kind.ORDER, key)}{encode_token(key)}"

    def person(self, key: str) -> str:
        """Return the subject of what is known of people, a sign-in or a token."""
        return f"{self.name}.person.{self._within(Kind.PERSON, key)}{encode_token(key)}"

    def dead(self, origin: str, cause: str) -> str:
        """Return the subject of the dead letter for `cause` (a sequence, an id) at `origin`."""
        return f"{self.name}.dead.{encode_token(origin)}.{encode_token(cause)}"

    def dead_letter(self, key: str) -> str:
        """Return the subject of the dead letter with this `key`, as `aggregate_of` gives it."""
        origin, _, cause = key.partition(".")
        return self.dead(decode_token(origin), decode_token(cause))

    def aggregate(self, kind: Kind, key: str) -> str:
        """Return the subject of an aggregate's life: the reverse of `aggregate_of`."""
        match kind:
            case Kind.EPISODE:
                return self.episode(key)
            case Kind.FINDING:
                return self.finding(key)
            case Kind.OUTPUT:
                return self.output(key)
            case Kind.LANE:
                return self.lane(key)
            case Kind.WORKFLOW:
                return self.workflow(key)
            case Kind.DEFINITION:
                return self.definition(key)
            case Kind.SIGNAL:
                return self._signal(key)
            case Kind.ORDER:
                return self.order(key)
            case Kind.PERSON:
                return self.person(key)
            case Kind.DEAD:
                return self.dead_letter(key)

    def aggregates(self, kind: Kind, partition: int = 0) -> str:
        """Return the filter for every aggregate of a kind in one partition of its stream."""
        token = self._token(self.holder_of(kind), partition)
        return f"{self.name}.{kind.value}.{f'{token}.' if token else ''}>"

    def aggregate_of(self, subject: str) -> tuple[Kind, str]:
        """Return the kind of the aggregate at `subject`, and its id or key.

        Of signals, and of a dead letter, the key is as it is encoded.
        """
        kind, _, token = subject.removeprefix(f"{self.name}.").partition(".")
        if kind == Kind.DEAD:
            return Kind.DEAD, token
        if self.partitions > 1:
            within, _, token = token.partition(".")
        if kind not in _KINDS or not token:
            raise BadName(f"no aggregate lives at {subject!r}")
        found = Kind(kind)
        key = as_subject_token(token) if found is Kind.SIGNAL else decode_token(token)
        # guard: aggregate-in-its-partition
        if self.partitions > 1 and f"{within}." != self._within(found, key):
            raise BadName(f"{found.value} {key!r} does not live at {subject!r}")
        return found, key

    def moved(self, subject: str, *, to: Stack) -> str:
        """Return where a commit or a command at `subject` is in the layout of `to`."""
        if not subject.startswith(f"{self.name}.inbox."):
            kind, key = self.aggregate_of(subject)
            return to.aggregate(kind, key)
        owner, key = subject.split(".")[-2:]
        for here, there in (
            (self.workflow_inbox, to.workflow_inbox),
            (self.attending_inbox, to.attending_inbox),
            (self.episode_inbox, to.episode_inbox),
        ):
            if here(owner, key) == subject:
                return there(owner, key)
        raise BadName(f"no inbox of an episode or an instance is at {subject!r}")
