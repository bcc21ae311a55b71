"""What a server of models sends. Pure."""

from __future__ import annotations

from streams.json import JsonObject, raw
from vigil.testing.model_server.answers import (
    CutOffAnswer,
    FailureAnswer,
    HangingAnswer,
    ModelReply,
    TextAnswer,
    reply_to,
)
from vigil.testing.model_server.connection import WireReply
from vigil.testing.model_server.entries import LedgerEntry
from vigil.testing.model_server.wire import WireProtocol


def sent(asked: LedgerEntry) -> WireReply:
    """Return an answer on the wire."""
    protocol = asked.protocol
    match asked.answer:
        case FailureAnswer() as failure:
            return failure_of(failure, protocol)
        case CutOffAnswer(text=text):
            reply = reply_to(asked.request, TextAnswer(text), id=asked.id)
            return _on_wire(reply, asked, is_cut_off=True)
        case HangingAnswer():
            return WireReply(is_never=True)
        case _:
            assert asked.reply is not None, "it is an answer that clients get whole"
            return _on_wire(asked.reply, asked)


def _on_wire(reply: ModelReply, asked: LedgerEntry, *, is_cut_off: bool = False) -> WireReply:
    if asked.request.is_streamed:
        frames = tuple(asked.protocol.frames(reply, asked.request))
        return WireReply(frames=frames, is_cut_off=is_cut_off)
    return in_json(asked.protocol.whole(reply), is_cut_off=is_cut_off)


def failure_of(failure: FailureAnswer, protocol: WireProtocol) -> WireReply:
    """Return a failure on the wire."""
    headers = {}
    after_s = failure.retry_after_s
    if after_s is not None:
        is_whole = float(after_s).is_integer()
        name, value = ("retry-after", after_s) if is_whole else ("retry-after-ms", after_s * 1000)
        headers[name] = str(round(value))
    body = bytes(raw(protocol.failed(failure)))
    return WireReply(status=failure.status, body=body, headers=headers)


def in_json(body: JsonObject, *, is_cut_off: bool = False) -> WireReply:
    """Return a body in one piece."""
    return WireReply(body=bytes(raw(body)), is_cut_off=is_cut_off)
