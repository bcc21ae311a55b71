"""`Subject`: outputs as NATS messages, on any subject that a stream captures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from engine.app.outputs import DeliveryFailed, OutputAdapter, OutputView
from engine.errors import BadAdapter
from streams.errors import BadName, Incompatible, StreamError, TooLarge, Unavailable, Uncaptured
from streams.json import NOTHING, exact, raw
from streams.model.events import EpisodeOpened
from streams.ports.all import Ports
from streams.ports.domain_events import Sent
from streams.wire.outgoing import problem_of_subject

_PERMANENT: Final[Mapping[type[StreamError], str]] = {
    Uncaptured: "no_stream",
    BadName: "bad_subject",
    TooLarge: "too_large",
    Incompatible: "not_permitted",
}
"""Exception → error class, of failures that a retry cannot help."""


class SubjectMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The payload of an output that names its own subject."""

    subject: str
    data: msgspec.Raw = NOTHING
    """Any JSON value."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class Subject(OutputAdapter):
    """Publishes each output; it is delivered when a stream has acknowledged it.

    With a subject, the payload is the message's body, as JSON. Without one, the payload is
    `{"subject": …, "data": any JSON, "headers": {…}}`. `Nats-Msg-Id` is the idempotency key, so a
    stream stores an output once within its duplicate window. The receiver's reference is
    `<stream>:<sequence>`.

    `<stack>.event.<name>` publishes a domain event, which may trigger actors; the hop limit
    applies. No other subject of the stack, or of the server, is allowed.
    """

    def __init__(self, subject: str | None = None) -> None:
        """Declare the subject, or raise `BadAdapter`; None: each payload names one."""
        if subject is not None and (problem := _problem(subject)):
            raise BadAdapter("Subject", "subject", problem)
        self._subject = subject
        self._ports: Ports | None = None

    async def open(self, ports: Ports) -> None:
        """Publish through `ports`."""
        self._ports = ports

    async def deliver(self, output: OutputView) -> str | None:
        """Publish one message. See `OutputAdapter.deliver`."""
        message = self._message(output.payload)
        assert self._ports is not None, "an adapter is opened before it delivers"
        try:
            sent = await _send(self._ports, message, output)
        except (*_PERMANENT,) as error:
            raise DeliveryFailed(_PERMANENT[type(error)], str(error), permanent=True) from error
        except Unavailable as error:
            raise DeliveryFailed("receiver_unavailable", str(error)) from error
        return f"{sent.stream}:{sent.seq}"

    def _message(self, payload: object) -> SubjectMessage:
        if self._subject is not None:
            return SubjectMessage(subject=self._subject, data=exact(payload))
        try:
            return msgspec.json.decode(raw(payload), type=SubjectMessage)
        except msgspec.ValidationError as error:
            raise DeliveryFailed("bad_payload", str(error), permanent=True) from error


def _problem(subject: object) -> str | None:
    if not isinstance(subject, str):
        return f"{subject!r} is not a text"
    return problem_of_subject(subject)


async def _send(ports: Ports, message: SubjectMessage, output: OutputView) -> Sent:
    return await ports.domain_events.send(
        message.subject,
        bytes(message.data),
        id=output.idempotency_key,
        headers=message.headers,
        hops=await _hops(ports, output.episode_id),  # guard: output-keeps-chain
    )


async def _hops(ports: Ports, episode_id: str) -> int:
    """Return the number of hops of an event that an output of this episode makes."""
    first = (await ports.log.read(ports.stack.episode(episode_id)))[:1]
    opened = [event for each in first for event in each.commit.events]
    return 1 + max(
        (one.trigger.hops for one in opened if isinstance(one, EpisodeOpened)), default=0
    )
