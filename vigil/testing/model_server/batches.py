"""Batches of both providers: many requests at once, whose answers are fetched later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from email import message_from_bytes
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec

from streams.json import JsonObject, raw
from vigil.testing.model_server import messages
from vigil.testing.model_server.answers import CutOffAnswer, FailureAnswer
from vigil.testing.model_server.connection import WireReply, WireRequest
from vigil.testing.model_server.entries import LedgerEntry
from vigil.testing.model_server.replies import in_json
from vigil.testing.model_server.wire import CREATED_AT_S, BadBody, WireProtocol, digest_of

Ask: TypeAlias = Callable[[WireProtocol, JsonObject, str], LedgerEntry]
"""A protocol, the body of a request, and the id of its batch → its entry."""

CREATED_AT: Final = "2030-01-01T00:00:00Z"
EXPIRES_AT: Final = "2030-01-02T00:00:00Z"

BROKEN: Final = FailureAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, message="cut off")


class _Line(msgspec.Struct):
    """A line of a file of OpenAI's."""

    custom_id: str
    url: str
    body: JsonObject


class _FileBatch(msgspec.Struct):
    input_file_id: str
    endpoint: str
    completion_window: str


class _Item(msgspec.Struct):
    """A request in a batch of Anthropic's."""

    custom_id: str
    params: JsonObject


class _ItemBatch(msgspec.Struct):
    requests: list[_Item]


@dataclass
class _Batch:
    """One batch, as far as it is known."""

    id: str
    entries: Mapping[str, LedgerEntry]
    """Custom id → entry, in the order of the requests."""
    polls_until_complete: int
    about: JsonObject = field(default_factory=dict)
    """What its provider repeats of it."""
    polls: int = 0
    is_canceled: bool = False

    @property
    def is_ended(self) -> bool:
        is_answered = all(_is_final(each) for each in self.entries.values())
        return self.is_canceled or (is_answered and self.polls > self.polls_until_complete)

    def poll(self) -> None:
        self.polls += 1
        for each in self.entries.values():
            each.polls += 1

    def cancel(self) -> None:
        if not self.is_ended:
            self.is_canceled = True
            for each in self.entries.values():
                each.is_canceled = True


class ModelBatches:
    """The files and batches of one server."""

    def __init__(self, ask: Ask, *, by_url: Mapping[str, WireProtocol], polls: int) -> None:
        """Ask for each answer with `ask`; batches are complete after `polls` polls."""
        self._ask, self._by_url, self._polls = ask, by_url, polls
        self._files: dict[str, bytes] = {}
        self._batches: dict[str, _Batch] = {}

    def handle(self, request: WireRequest) -> WireReply | None:
        """Return the reply to a request about files or batches; None: it is about something else.

        Raises `BadBody` or what `UNDECODABLE` names if it is none that a provider takes.
        """
        parts = request.path.split("/")[2:]
        is_of_items = parts[:1] == ["messages"]
        match request.method, parts[1:] if is_of_items else parts:
            case "POST", ["files"]:
                return self._upload(request)
            case "GET", ["files", id, "content"] if id in self._files:
                return WireReply(body=self._files[id])
            case "DELETE", ["files", id] if id in self._files:
                del self._files[id]
                return in_json({"id": id, "object": "file", "deleted": True})
            case "GET", ["batches", id, "results"] if id in self._batches:
                entries = self._batches[id].entries
                return WireReply(body=_jsonl(map(_result, entries, entries.values())))
            case "POST", ["batches"]:
                batch = self._of_items(request.body) if is_of_items else self._of_file(request.body)
            case "GET", ["batches", id] if id in self._batches:
                batch = self._batches[id]
                batch.poll()
            case "POST", ["batches", id, "cancel"] if id in self._batches:
                batch = self._batches[id]
                batch.cancel()
            case _:
                return None
        return in_json(_shown_items(batch, request) if is_of_items else self._shown(batch))

    def _upload(self, request: WireRequest) -> WireReply:
        kind = request.headers.get("content-type", "").encode()
        form = message_from_bytes(b"content-type: " + kind + b"\r\n\r\n" + request.body)
        for part in form.walk():
            name = part.get_filename()
            content = part.get_payload(decode=True)
            if name and isinstance(content, bytes):
                id = f"file-{digest_of(str(len(self._files)), content.decode())}"
                self._files[id] = content
                return in_json(_file(id, name, content))
        raise BadBody("no file in the form")

    def _of_file(self, body: bytes) -> _Batch:
        said = msgspec.json.decode(body, type=_FileBatch)
        protocol = self._by_url.get(said.endpoint)
        content = self._files.get(said.input_file_id)
        if protocol is None or content is None:
            raise BadBody(f"no file {said.input_file_id!r}, or no endpoint {said.endpoint!r}")
        lines = [msgspec.json.decode(each, type=_Line) for each in content.splitlines() if each]
        bodies = {each.custom_id: each.body for each in lines}
        return self._made("batch", protocol, bodies, about=msgspec.to_builtins(said))

    def _of_items(self, body: bytes) -> _Batch:
        said = msgspec.json.decode(body, type=_ItemBatch)
        bodies = {each.custom_id: each.params for each in said.requests}
        return self._made("msgbatch", messages.PROTOCOL, bodies, about={})

    def _made(
        self, kind: str, protocol: WireProtocol, bodies: Mapping[str, JsonObject], about: JsonObject
    ) -> _Batch:
        id = f"{kind}_{digest_of(str(len(self._batches)), bytes(raw(dict(bodies))).decode())}"
        entries = {name: self._ask(protocol, body, id) for name, body in bodies.items()}
        made = _Batch(id, entries, polls_until_complete=self._polls, about=about)
        self._batches[id] = made
        return made

    def _shown(self, batch: _Batch) -> JsonObject:
        """Return a batch as OpenAI shows it, its files made if it has ended."""
        failed = [name for name, each in batch.entries.items() if each.reply is None]
        status = "cancelled" if batch.is_canceled else "completed"
        files: JsonObject = {}
        if batch.is_ended and not batch.is_canceled:
            good = [each for each in batch.entries if each not in failed]
            for field_name, names in (("output_file_id", good), ("error_file_id", failed)):
                if names:
                    files[field_name] = f"file-{batch.id}-{field_name}"
                    lines = [_line(name, batch.entries[name]) for name in names]
                    self._files[files[field_name]] = _jsonl(lines)
        return {
            **batch.about,
            "id": batch.id,
            "object": "batch",
            "created_at": CREATED_AT_S,
            "status": status if batch.is_ended else "in_progress",
            "request_counts": {
                "total": len(batch.entries),
                "completed": len(batch.entries) - len(failed),
                "failed": len(failed),
            },
            **files,
        }


def _shown_items(batch: _Batch, request: WireRequest) -> JsonObject:
    """Return a batch as Anthropic shows it."""
    kinds = [_result(*each)["result"]["type"] for each in batch.entries.items()]
    counts = {kind: kinds.count(kind) for kind in ("succeeded", "errored", "canceled")}
    if not batch.is_ended:
        counts = dict.fromkeys(counts, 0)
    url = f"http://{request.headers['host']}/v1/messages/batches/{batch.id}/results"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if batch.is_ended else "in_progress",
        "request_counts": {
            **counts,
            "expired": 0,
            "processing": 0 if batch.is_ended else len(batch.entries),
        },
        "created_at": CREATED_AT,
        "expires_at": EXPIRES_AT,
        "ended_at": CREATED_AT if batch.is_ended else None,
        "cancel_initiated_at": CREATED_AT if batch.is_canceled else None,
        "archived_at": None,
        "results_url": url if batch.is_ended else None,
    }


def _is_final(entry: LedgerEntry) -> bool:
    return entry.reply is not None or _failure(entry) is not None


def _failure(entry: LedgerEntry) -> FailureAnswer | None:
    """Return how an entry failed; None: it did not, or it never ends."""
    answer = entry.answer
    if isinstance(answer, FailureAnswer):
        return answer
    return BROKEN if isinstance(answer, CutOffAnswer) else None


def _line(name: str, entry: LedgerEntry) -> JsonObject:
    reply = entry.reply
    failure = _failure(entry) or BROKEN
    said = {
        "status_code": HTTPStatus.OK if reply is not None else failure.status,
        "request_id": entry.id,
        "body": entry.protocol.whole(reply) if reply else entry.protocol.failed(failure),
    }
    return {"id": f"line_{entry.id}", "custom_id": name, "response": said, "error": None}


def _result(name: str, entry: LedgerEntry) -> JsonObject:
    result: JsonObject = {"type": "canceled"}
    if not entry.is_canceled and (reply := entry.reply) is not None:
        result = {"type": "succeeded", "message": entry.protocol.whole(reply)}
    elif not entry.is_canceled:
        result = {"type": "errored", "error": entry.protocol.failed(_failure(entry) or BROKEN)}
    return {"custom_id": name, "result": result}


def _file(id: str, name: str, content: bytes) -> JsonObject:
    return {
        "id": id,
        "object": "file",
        "bytes": len(content),
        "created_at": CREATED_AT_S,
        "filename": name,
        "purpose": "batch",
        "status": "processed",
    }


def _jsonl(lines: Iterable[JsonObject]) -> bytes:
    return b"".join(bytes(raw(each)) + b"\n" for each in lines)
