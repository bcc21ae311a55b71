"""`StreamedModel`: a model that is asked for its answer piece by piece, and who hears it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from engine.agents.unit import (
    AnswerListener,
)

IN_WORDS: Final = "text", "tool"
"""Output modes of the library in which a text of a model is what it says in words."""


class StreamedModel(WrapperModel):
    """Asks a model for its answer piece by piece, tells who listens, and returns it whole.

    It streams within the request that the library makes, and not by streams of the library's own:
    those tell telemetry once more of a request that is only replayed.
    """

    def __init__(
        self,
        wrapped: Model,
        listener: Callable[[], AnswerListener | None],
        *,
        hidden: frozenset[str],
    ) -> None:
        """Ask `wrapped`; `listener` returns who listens, `hidden` is what nobody may see."""
        super().__init__(wrapped)
        self._listener, self._hidden = listener, hidden

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the whole answer."""
        # guard: plan-as-text-not-told
        tells_text = not self._hidden or self._answers_in_words(
            model_settings, model_request_parameters
        )
        asking = self.wrapped.request_stream(messages, model_settings, model_request_parameters)
        async with asking as answer:
            async for event in answer:
                if (listener := self._listener()) is not None:
                    _tell(event, listener, tells_text=tells_text)
        return answer.get()

    def _answers_in_words(
        self, settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> bool:
        """Return whether a text is no output of another type, of which people may not see all."""
        _, prepared = self.wrapped.prepare_request(settings, parameters)
        return prepared.output_mode in IN_WORDS


def can_stream(model: object) -> bool:
    """Return whether `model` can answer piece by piece; one that cannot answers in one piece."""
    match model:
        case WrapperModel(wrapped=wrapped):
            return can_stream(wrapped)
        case FallbackModel(models=models):
            return all(map(can_stream, models))
        case FunctionModel(stream_function=function):
            return function is not None
        case Model():
            return type(model).request_stream is not Model.request_stream
        case _:
            return False


def _tell(event: ModelResponseStreamEvent, listener: AnswerListener, *, tells_text: bool) -> None:
    """Tell the text of an answer, and which tools it calls: people may not see all arguments."""
    match event:
        case (
            PartStartEvent(part=TextPart(content=text))
            | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
        ) if tells_text:
            listener.say(text)
        case PartStartEvent(part=ToolCallPart(tool_name=name)):
            listener.call(name)
        case _:
            pass
