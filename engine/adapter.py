"""Adapters: how outputs reach the outside.

An adapter is what a user registers in `App(outputs={"pager": …})`. It is asked to deliver one
output at a time, at least once: a node that dies after the outside has accepted an output and
before that is on the journal leaves it to be delivered again, with the same `idempotency_key`.
Give that key to systems that honour one, and nothing happens twice.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from streams.ports import Ports


class OutputView(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be delivered, for adapters.

    Nodes fill in every field. The defaults are for tests: `await deliver(OutputView(payload=…))`.
    """

    payload: object
    """As the strategy gave it: any JSON value, decoded. It is the adapter's to keep."""
    output_key: str = "output"
    """Its name in the stack; `vigil outputs show` finds it by this."""
    adapter: str = "adapter"
    """The name under which `App.outputs` has the adapter."""
    idempotency_key: str = "0" * 64
    """64 hex digits: the same for every attempt at this output, and never that of another one."""
    attempt: int = 1
    """1-based, over all attempts since it was proposed; a new one after a crash counts, too."""
    episode_id: str = "episode"
    actor_id: str = "actor"
    expectation_id: str = "expectation"
    stack: str = "vigil"


class DeliveryFailed(Exception):
    """Raised by an adapter to say, in its own words, that an output was not delivered."""

    def __init__(
        self,
        error_class: str,
        detail: str = "",
        *,
        permanent: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        """Say why.

        Args:
            error_class: a stable word or two, such as `rate_limited`.
            detail: for people.
            permanent: whether trying again is of no use: the output fails at once. Otherwise it is
                tried again, as often as its `Route` says.
            retry_after_s: what the receiver asks for: the next attempt is not made before, but for
                what is longer than an hour.
        """
        super().__init__(f"{error_class}: {detail}" if detail else error_class)
        self.error_class = error_class or "delivery_failed"
        self.detail = detail
        self.permanent = permanent
        self.retry_after_s = retry_after_s


class OutputAdapter:
    """Something that delivers outputs. Override `deliver`; the rest has sensible defaults."""

    async def open(self, ports: Ports) -> None:
        """Get ready, once, before the first delivery on a node.

        An exception fails that delivery for now, and the next one calls it again.
        """

    async def deliver(self, output: OutputView) -> str | None:
        """Deliver `output`, and return what the receiver calls it, if that is known.

        It may be called for several outputs at a time: `Route.max_concurrent` bounds that. It is
        canceled when it takes longer than `Route.timeout_s`.

        Raises:
            DeliveryFailed: it was not delivered, for now or for good. Any other exception counts
                as for now.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of what `open` has got. Called once, when the node has stopped."""


DeliverFunction: TypeAlias = Callable[[OutputView], Awaitable[str | None]]
AdapterLike: TypeAlias = OutputAdapter | DeliverFunction
"""An `OutputAdapter`, or an async function that delivers."""


class _Function(OutputAdapter):
    """A plain function as an adapter."""

    def __init__(self, function: DeliverFunction) -> None:
        self._function = function

    async def deliver(self, output: OutputView) -> str | None:
        """Call the function."""
        return await self._function(output)


def as_adapter(candidate: object) -> OutputAdapter:
    """Return `candidate` as an adapter.

    Raises:
        TypeError: it is none of the things that can be one.
    """
    match candidate:
        case OutputAdapter():
            if problem := _problem_of(candidate):
                raise TypeError(f"{type(candidate).__name__}: {problem}")
            return candidate
        case _ if inspect.iscoroutinefunction(candidate):
            return _Function(candidate)
        case _:
            raise TypeError(
                f"{candidate!r} is no adapter; use an async function (output)"
                " or an instance of a subclass of OutputAdapter"
            )


def _problem_of(adapter: OutputAdapter) -> str | None:
    if type(adapter).deliver is OutputAdapter.deliver:
        return "it has no deliver; write `async def deliver(self, output)`"
    methods = {"open": adapter.open, "deliver": adapter.deliver, "close": adapter.close}
    plain = [name for name, method in methods.items() if not inspect.iscoroutinefunction(method)]
    return f"{plain[0]} must be `async def`" if plain else None


ERROR_CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (TimeoutError, "delivery_timeout"),
    (PermissionError, "delivery_refused"),
    (ConnectionError, "receiver_unavailable"),
)
"""What an exception out of an adapter is called, where its kind says enough; else `crash`."""
