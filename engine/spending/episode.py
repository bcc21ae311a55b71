"""`EpisodeSpending`: what one episode may spend on requests to models, and what it has spent.

Around a request, in this order:

    usd = spending.worst_case(model, input_bytes, max_output_tokens)    may refuse the model
    await spending.reserve(usd, path=path)                              may refuse: no money is left
    record Announce(…, path=path, reserved_usd=usd); await barrier()    unless it is announced
    … the request …
    record Performed(…, path=path, cost_usd=cost); await barrier()
    await spending.settle(path, cost)

A node that dies after the reservation leaves it; the next one reserves the same again, by the
episode's id and the path, and nothing is taken twice. If it dies after the record, the next one
settles what is recorded, by `settle_recorded`, when it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from engine.episodes.episode import Episode, unaffordable
from engine.errors import EpisodeFailed
from engine.runtime.context import ActorContext
from engine.spending.prices import Prices, nobody_knows
from engine.spending.store import SpendingStore
from engine.spending.window import Window, windows_at
from streams.model.events import EpisodeOpened, StepRecorded
from streams.model.money import NO_USD
from streams.ports.log import Recorded

UNPRICED_MODEL: Final = "unpriced_model"
"""Error class of an episode whose next request would go to a model whose price nobody knows."""


@dataclass
class EpisodeSpending:
    """The money of one attempt at an episode: its budget, its actor's windows, its stack's.

    It is made where one of them has a limit in dollars.
    """

    context: ActorContext
    opened: EpisodeOpened
    episode: Callable[[], Episode]
    """Returns the fold of all that is recorded by now, as `lambda: journal.episode`."""
    _windows: dict[str, tuple[Window, ...]] = field(default_factory=dict)
    """Path → where its request is reserved."""
    _taken: dict[str, Decimal] = field(default_factory=dict)
    """Path → what a request that is about to be announced may cost."""

    @property
    def taken_usd(self) -> Decimal:
        """What requests that are about to be announced may cost, in all."""
        announced = self.episode().reservations
        ahead = (usd for path, usd in self._taken.items() if path not in announced)
        return sum(ahead, NO_USD)

    def worst_case(
        self, model: str, input_text_bytes: int, max_output_tokens: int
    ) -> Decimal | None:
        """Return the most that a request can cost, in dollars, for `reserve`.

        Args:
            model: its whole name, such as `openai:gpt-5`.
            input_text_bytes: all that is sent, in bytes of UTF-8: instructions, messages, schemas.
            max_output_tokens: most tokens of the answer, as the request says it itself.

        None: nobody knows its price, and the app says `unpriced="zero"`: there is nothing to
        reserve. Raises `EpisodeFailed`, class `unpriced_model`, before anything is spent, where the
        app says `unpriced="refuse"`. The first call takes 0.3 s, for the list of prices.
        """
        app = self.context.app
        most = Prices(app.prices).worst_case(model, input_text_bytes, max_output_tokens)
        if most is None and app.unpriced == "refuse":  # guard: unpriced-model-refused
            raise EpisodeFailed(UNPRICED_MODEL, nobody_knows(model))
        return most

    async def reserve(self, usd_worst: Decimal, *, path: str) -> None:
        """Take the most that the request at `path` can cost from the episode and all windows.

        Await it before the request is announced or made; in an attempt after a crash as well,
        whether the request is announced or not. Other branches may reserve meanwhile.

        Raises:
            BudgetExceeded: the episode has not so much left, or, as `SpendingExceeded`, its actor
                or the stack; nothing is taken, and the request must not be made. Let it end the
                episode: `on_exhausted` is asked as for other limits.
            SpendingContended, Unavailable: nothing is known; the attempt is repeated later.
        """
        episode = self.episode()
        self._taken.pop(path, None)
        announced = episode.reservations.get(path, NO_USD)  # guard: announced-is-not-taken-twice
        reserved = episode.usd_reserved - announced + self.taken_usd
        budget, used = episode.budget, episode.usd_used
        refused = unaffordable(budget, usd_worst, used=used, reserved=reserved)
        if refused is not None:
            raise refused
        windows = self._windows[path] = self._windows_now()
        self._taken[path] = usd_worst  # guard: branches-share-budget
        with ExitStack() as unless_reserved:
            unless_reserved.callback(self._taken.pop, path, None)
            await self._store.reserve(windows, usd_worst, ref=self._ref(path))
            unless_reserved.pop_all()

    async def settle(self, path: str, usd: Decimal | None) -> None:
        """Put what the request at `path` has cost in the place of what was reserved for it.

        Await it once the step is durable with the same cost: a request that is recorded is never
        made again, and one that is not keeps its reservation. `Decimal(0)`: it has cost nothing,
        such as one that the provider has refused. None: nobody knows, such as one that was cut off;
        then its most counts. Settling again, or what was never reserved here, changes nothing. One
        that is not made after all has cost nothing, too.

        Raises `SpendingContended` or `Unavailable` where the windows cannot be changed; the attempt
        is repeated later, and begins with `settle_recorded`.
        """
        await self._store.settle(self._windows.get(path, ()), usd, ref=self._ref(path))
        self.forget(path)

    def forget(self, path: str) -> None:
        """Forget the request at `path`, if any, which is recorded without its cost.

        It counts at its most, in the fold and in the windows, which nobody settles.
        """
        self._windows.pop(path, None)
        self._taken.pop(path, None)

    async def settle_recorded(self, records: Iterable[Recorded]) -> None:
        """Settle what a node has recorded in `records` and died before it could settle.

        Await it at the beginning of an attempt. Raises as `settle` does.
        """
        steps = (each for record in records for each in record.commit.events)
        costs = {
            self._ref(each.path): each.cost_usd
            for each in steps
            if isinstance(each, StepRecorded) and each.is_request
        }
        if costs:
            await self._store.settle_all(self._windows_now(), costs)

    def _windows_now(self) -> tuple[Window, ...]:
        return windows_at(
            self.opened.actor_id,
            of_actor=self.context.actor.spending,
            of_stack=self.context.app.spending,
            now=self.context.clock.now(),
        )

    @property
    def _store(self) -> SpendingStore:
        return SpendingStore(self.context.ports.gates, self.context.clock, self.context.turns)

    def _ref(self, path: str) -> str:
        return f"{self.opened.episode_id}:{path}"
