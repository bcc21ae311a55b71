"""What requests to models cost: the most before they are made, and what they have cost after.

Prices come from the app (`prices=…`), else from the package genai-prices, which the extra `agents`
brings, and which has them without asking anybody. Sums are decimals throughout.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from streams.model.money import NO_USD, Price, priced_name

BYTES_PER_TOKEN: Final = 3
"""Bytes of text that are one token of input, at the least: models have about 4 of English."""

PER: Final = Decimal(1_000_000)

_LIBRARY: Final = "genai_prices"

_PROVIDERS: Final[Mapping[str, str]] = {
    "bedrock": "aws",
    "google-cloud": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "grok": "x-ai",
    "xai": "x-ai",
}
"""Provider of a model, as pydantic-ai calls it → as genai-prices does, where the two differ."""


def input_tokens_of(input_bytes: int) -> int:
    """Return the most tokens that a text of so many bytes of UTF-8 is taken to be, rounded up."""
    return -(-input_bytes // BYTES_PER_TOKEN)  # guard: tokens-rounded-up


@dataclass(frozen=True)
class Prices:
    """The prices of models; `own` come first."""

    own: Mapping[str, Price]

    def worst_case(
        self, model: str, input_text_bytes: int, max_output_tokens: int
    ) -> Decimal | None:
        """Return the most that a request can cost, in dollars; None: nobody knows its price.

        `model` is its whole name, such as `openai:gpt-5`, however it is written. Nothing of the
        input is taken to be cached, and all of it to be written to a cache, where that costs more.
        """
        tokens = input_tokens_of(input_text_bytes)
        if (price := self._own_price(model)) is not None:
            return _cost(price, input_tokens=tokens, output_tokens=max_output_tokens)
        used = {"input_tokens": tokens, "output_tokens": max_output_tokens}
        plain = _listed(model, used)
        written = _listed(model, {**used, "cache_write_tokens": tokens})
        known = [each for each in (plain, written) if each is not None]
        return max(known) if known else None  # guard: worst-case-writes-cache

    def cost(
        self, model: str, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0
    ) -> Decimal | None:
        """Return what a request has cost, in dollars; None: nobody knows its price.

        `input_tokens` include those that were `cached_tokens`.
        """
        if (price := self._own_price(model)) is not None:
            return _cost(
                price,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_tokens=cached_tokens,
            )
        used = {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cache_read_tokens": cached_tokens,
        }
        return _listed(model, used)

    def is_own(self, model: str) -> bool:
        """Return whether the app has the price of `model`."""
        return self._own_price(model) is not None

    def is_priced(self, model: str) -> bool:
        """Return whether anybody knows the price of `model`."""
        return self.worst_case(model, 1, 1) is not None

    def _own_price(self, model: str) -> Price | None:
        # guard: own-price-by-any-name
        by_name = {priced_name(each): price for each, price in self.own.items()}
        return by_name.get(priced_name(model))


def are_listed() -> bool:
    """Return whether the list of prices is installed; where it is not, no model can be asked."""
    return find_spec(_LIBRARY) is not None


def nobody_knows(model: str) -> str:
    """Return that the price of `model` is unknown where it is needed, and what to write."""
    name = priced_name(model)
    return (
        f"nobody knows the price of {name!r}, and a limit in dollars applies;"
        f' App(prices={{{name!r}: Price(…)}}), or App(unpriced="zero")'
    )


def _cost(
    price: Price, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0
) -> Decimal:
    per_cached = price.cached_per_million
    fresh = input_tokens - cached_tokens if per_cached is not None else input_tokens
    cached = cached_tokens * per_cached if per_cached is not None else NO_USD
    whole = fresh * price.input_per_million + cached + output_tokens * price.output_per_million
    return whole / PER


def _listed(model: str, used: Mapping[str, int]) -> Decimal | None:
    """Return what genai-prices says; None: it is not installed, or does not know the model."""
    library = _library()
    provider, colon, name = priced_name(model).partition(":")  # guard: listed-price-by-any-name
    if library is None or not colon:
        return None
    provider = _PROVIDERS.get(provider, provider)
    try:
        found = library.calc_price(library.Usage(**used), name, provider_id=provider or None)
    except LookupError:
        return None
    price: Decimal = found.total_price
    return price


@cache
def _library() -> Any:  # noqa: ANN401 - it is imported when it is first used: it takes 0.3 s
    try:
        return importlib.import_module(_LIBRARY)
    except ModuleNotFoundError:
        return None
