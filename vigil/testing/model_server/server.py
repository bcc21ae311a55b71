"""A real HTTP server that speaks as providers of models do, and answers as a script says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from streams.json import UNDECODABLE, JsonObject, raw
from vigil.testing.model_server import chat, messages, responses
from vigil.testing.model_server.answers import (
    FailureAnswer,
    ModelAnswer,
    ModelCall,
    ModelReply,
    ModelRequest,
    ModelUsage,
    TextAnswer,
    added,
)
from vigil.testing.model_server.batches import ModelBatches
from vigil.testing.model_server.connection import WireReply, WireRequest, serve
from vigil.testing.model_server.entries import LedgerEntry
from vigil.testing.model_server.replies import failure_of, in_json, sent
from vigil.testing.model_server.wire import CREATED_AT_S, BadBody, WireProtocol, digest_of

HOST: Final = "127.0.0.1"

IDEMPOTENCY_KEY: Final = "idempotency-key"

PROTOCOLS: Final = {
    "/v1/chat/completions": chat.PROTOCOL,
    "/v1/responses": responses.PROTOCOL,
    "/v1/messages": messages.PROTOCOL,
}

RESPONSES: Final = "/v1/responses/"

SaidAnswer: TypeAlias = ModelAnswer | str
"""A plain text is a `TextAnswer`."""

ModelScript: TypeAlias = (
    Sequence[SaidAnswer] | Callable[[ModelRequest], SaidAnswer | Awaitable[SaidAnswer]]
)
"""Answers that are used up one after the other; or a function, async or not, that is asked."""

_ANSWERS: Final = get_args(ModelAnswer)


class Unscripted(AssertionError):
    """A server of models was asked for more than its script can answer."""


class ModelLedger(msgspec.Struct, frozen=True, kw_only=True):
    """What a server of models was asked for so far; `GET /ledger` returns it as JSON."""

    requests: int = 0
    """Requests for answers, repetitions included."""
    calls: tuple[ModelCall, ...] = ()
    usage: ModelUsage = ModelUsage()


class ModelServer:
    """A server of models on a free port of loopback, for as long as a context lasts.

        async with ModelServer(["fine", FailureAnswer(529), JsonAnswer({"severity": "high"})]) as s:
            provider = OpenAIProvider(base_url=f"{s.url}/v1", api_key="test")
            agent = Agent(OpenAIChatModel("test-model", provider=provider))
            assert (await agent.run("How is it?")).output == "fine"
            assert s.calls[0].request.text == "How is it?"

    It speaks OpenAI's chat completions and responses (with `background`, to be retrieved and
    canceled) and Anthropic's messages, in one piece and as a stream, takes batches of all three,
    and lists its models. An Anthropic client wants `base_url=s.url`. Any key is good.

    Requests with one `Idempotency-Key` and equal bodies are one call, and get one answer; a failure
    is not kept, so the same key then gets the next answer. A different body under a known key is
    refused with 400.

    Leaving the context raises `Unscripted` if the script had no answer to some request, which the
    client got as a failure.
    """

    def __init__(
        self,
        script: ModelScript,
        *,
        models: Sequence[str] = ("test-model",),
        polls_until_complete: int = 1,
    ) -> None:
        """Answer as `script` says.

        Args:
            script: answers, or a function of the `ModelRequest`.
            models: the ids that `/v1/models` lists. Requests may name any.
            polls_until_complete: how often a background response or a batch is retrieved as
                `in_progress` before it is complete.
        """
        self._script, self._models = script, tuple(models)
        self._polls_until_complete = polls_until_complete
        self._asked: list[LedgerEntry] = []
        self._by_key: dict[str, LedgerEntry] = {}
        self._batches = ModelBatches(self._batched, by_url=PROTOCOLS, polls=polls_until_complete)
        self._in_background: dict[str, LedgerEntry] = {}
        self._equal: Counter[str] = Counter()
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._another = asyncio.Event()
        self.requests = 0
        """Requests for answers so far, repetitions included."""

    @property
    def url(self) -> str:
        """Return where it listens, such as `http://127.0.0.1:41234`."""
        assert self._server is not None, "it has started"
        return f"http://{HOST}:{self._server.sockets[0].getsockname()[1]}"

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """Return one row for each answer of the script, in the order of the requests."""
        return tuple(each.row for each in self._asked)

    @property
    def usage(self) -> ModelUsage:
        """Return the tokens of all calls."""
        return added(each.usage for each in self.calls)

    @property
    def ledger(self) -> ModelLedger:
        """Return all of this as data."""
        return ModelLedger(requests=self.requests, calls=self.calls, usage=self.usage)

    async def wait_requests(self, count: int) -> None:
        """Wait until there were `count` requests, answered or not."""
        while self.requests < count:
            await self._another.wait()

    async def start(self, *, port: int = 0) -> None:
        """Listen on `port`; 0: on a free one."""
        self._server = await asyncio.start_server(self._connected, HOST, port)

    async def stop(self) -> None:
        """Close all connections, answered or not."""
        assert self._server is not None, "it has started"
        self._server.close()
        left = [*self._serving, *(each.drawing for each in self._asked)]
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()
        problems = list(self._problems())
        if problems and kind is None:  # guard: unscripted-request-told
            raise Unscripted("\n".join(map(_told, problems))) from problems[0]

    def _problems(self) -> Iterator[BaseException]:
        for each in self._asked:
            if each.drawing.done() and not each.drawing.cancelled():
                error = each.drawing.exception()
                if error is not None:
                    yield error

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of its own, since asyncio reports the end of this one as a crash.
        serving = asyncio.create_task(serve(reader, writer, self._handle))
        self._serving.add(serving)
        await asyncio.wait({serving})
        self._serving.discard(serving)

    async def _handle(self, request: WireRequest) -> WireReply:
        protocol = PROTOCOLS.get(request.path)
        if request.method == "POST" and protocol is not None:
            return await self._answer(protocol, request)
        try:
            if (reply := self._batches.handle(request)) is not None:
                return reply
        except (*UNDECODABLE, BadBody) as problem:
            said = FailureAnswer(HTTPStatus.BAD_REQUEST, message=str(problem))
            return failure_of(said, chat.PROTOCOL)
        match request.method, request.path.split("/")[1:]:
            case "GET", ["ledger"]:
                return WireReply(body=msgspec.json.encode(self.ledger))
            case "GET", ["v1", "models"]:
                return in_json(self._listed())
            case "GET", ["v1", "models", id] if id in self._models:
                return in_json(_model(id))
            case "GET", ["v1", "responses", id] if id in self._in_background:
                return self._polled(self._in_background[id])
            case "POST", ["v1", "responses", id, "cancel"] if id in self._in_background:
                return self._canceled(self._in_background[id])
            case _:
                said = FailureAnswer(HTTPStatus.NOT_FOUND, message=f"no {request.path} here")
                return failure_of(said, chat.PROTOCOL)

    def _batched(self, protocol: WireProtocol, body: JsonObject, batch: str) -> LedgerEntry:
        self._count()
        return self._entry(protocol, replace(protocol.read(body, ""), batch=batch), body)

    def _count(self) -> None:
        self.requests += 1
        self._another.set()
        self._another = asyncio.Event()

    async def _answer(self, protocol: WireProtocol, request: WireRequest) -> WireReply:
        self._count()
        key = request.headers.get(IDEMPOTENCY_KEY, "")
        try:
            body = msgspec.json.decode(request.body, type=JsonObject)
            asked = self._entry(protocol, protocol.read(body, key), body)
        except (*UNDECODABLE, BadBody) as problem:
            return failure_of(FailureAnswer(HTTPStatus.BAD_REQUEST, message=str(problem)), protocol)
        if asked.request.settings.get("background") and not asked.request.is_streamed:
            self._in_background[f"resp_{asked.id}"] = asked
            return in_json(responses.begun(self._head(asked), "queued"))
        await asyncio.wait({asked.drawing})
        if (error := asked.drawing.exception()) is not None:
            said = FailureAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, message=_told(error))
            return failure_of(said, protocol)
        return sent(asked)

    def _entry(
        self, protocol: WireProtocol, request: ModelRequest, body: JsonObject
    ) -> LedgerEntry:
        """Return the answer that a request gets, a known one for a known idempotency key."""
        digest = digest_of(protocol.name, bytes(raw(body)).decode())
        held = self._by_key.get(request.idempotency_key)
        if held is not None and held.digest != digest:  # guard: key-of-another-body
            raise BadBody(f"idempotency key {request.idempotency_key!r}: its body was another one")
        if held is not None and held.is_repeatable:  # guard: failure-not-kept-by-key
            held.times += 1
            return held
        self._equal[digest] += 1
        made = LedgerEntry(
            request=request,
            protocol=protocol,
            digest=digest,
            id=digest_of(digest, str(self._equal[digest])),
            drawing=asyncio.create_task(self._draw(request, len(self._asked))),
        )
        self._asked.append(made)
        if request.idempotency_key:
            self._by_key[request.idempotency_key] = made
        return made

    async def _draw(self, request: ModelRequest, number: int) -> ModelAnswer:
        """Return what the script says."""
        if callable(self._script):
            returned = self._script(request)
            said = await returned if isinstance(returned, Awaitable) else returned
        elif number < len(self._script):
            said = self._script[number]
        else:
            known = len(self._script)
            raise Unscripted(f"the script has {known} answers, and this is one more request")
        if isinstance(said, str):
            return TextAnswer(said)
        if type(said) not in _ANSWERS:
            raise Unscripted(f"{said!r} is no answer; use one such as TextAnswer('…')")
        return said

    def _head(self, asked: LedgerEntry) -> ModelReply:
        return ModelReply(id=asked.id, model=asked.request.model)

    def _polled(self, asked: LedgerEntry) -> WireReply:
        asked.polls += 1
        reply = asked.reply
        if asked.is_canceled:
            return in_json(responses.begun(self._head(asked), "cancelled"))
        if isinstance(failure := asked.answer, FailureAnswer):
            error = {"code": failure.code or "server_error", "message": failure.message}
            return in_json(responses.begun(self._head(asked), "failed", error=error))
        if reply is None or asked.polls <= self._polls_until_complete:
            return in_json(responses.begun(self._head(asked), "in_progress"))
        return in_json(responses.whole(reply))

    def _canceled(self, asked: LedgerEntry) -> WireReply:
        reply = asked.reply
        if reply is not None and asked.polls > self._polls_until_complete:
            return in_json(responses.whole(reply))
        asked.is_canceled = True
        return in_json(responses.begun(self._head(asked), "cancelled"))

    def _listed(self) -> JsonObject:
        # The fields of both providers: each client reads its own.
        ids = self._models
        ends = {"first_id": ids[0], "last_id": ids[-1]} if ids else {}
        return {"object": "list", "data": [*map(_model, ids)], "has_more": False, **ends}


def _model(id: str) -> JsonObject:
    return {
        "id": id,
        "object": "model",
        "created": CREATED_AT_S,
        "owned_by": "test",
        "type": "model",
        "display_name": id,
        "created_at": "2030-01-01T00:00:00Z",
    }


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, Unscripted) else f"the script raised {error!r}"
