"""What a request can cost, and what it has cost."""

from __future__ import annotations

from decimal import Decimal

import pytest

from engine.spending.prices import Prices, input_tokens_of
from streams.model.money import Price

OWN = Prices({"openai:mine": Price(input_per_million="3", output_per_million="15")})
CACHING = Prices(
    {"openai:mine": Price(input_per_million=3, output_per_million=15, cached_per_million="0.30")}
)
LISTED = Prices({})


@pytest.mark.parametrize(("size", "tokens"), [(0, 0), (1, 1), (3, 1), (4, 2), (3_000, 1_000)])
def test_three_bytes_are_a_token_and_what_is_begun_is_one(size, tokens):
    assert input_tokens_of(size) == tokens


def test_the_worst_case_has_all_of_the_input_and_the_longest_answer():
    assert OWN.worst_case("openai:mine", 3_000, 500) == Decimal("0.0105")


def test_a_cost_is_exact_to_the_last_token():
    assert OWN.cost("openai:mine", input_tokens=1, output_tokens=1) == Decimal("0.000018")


def test_cached_input_costs_what_was_declared_for_it():
    used = {"input_tokens": 1_000, "output_tokens": 0, "cached_tokens": 900}
    assert CACHING.cost("openai:mine", **used) == Decimal("0.00057")
    assert OWN.cost("openai:mine", **used) == Decimal("0.003")


def test_prices_of_known_models_are_listed():
    assert LISTED.worst_case("openai:gpt-5", 3_000_000, 1_000) == Decimal("1.26")
    assert LISTED.cost("openai:gpt-5", input_tokens=1_000_000, output_tokens=1_000) == Decimal(
        "1.26"
    )


def test_in_the_worst_case_all_of_the_input_is_written_to_a_cache():
    model = "anthropic:claude-sonnet-4-5"
    plain = LISTED.cost(model, input_tokens=1_000, output_tokens=10)
    assert LISTED.worst_case(model, 3_000, 10) > plain


def test_a_provider_is_known_by_the_name_that_an_agent_gives_it():
    assert LISTED.is_priced("google-gla:gemini-2.5-pro")
    assert LISTED.is_priced("openai-responses:gpt-5")


def test_an_own_price_comes_before_the_listed_one():
    own = Prices({"openai:gpt-5": Price(input_per_million=1, output_per_million=1)})
    assert own.worst_case("openai:gpt-5", 3, 1) == Decimal("0.000002")


@pytest.mark.parametrize("model", ["openai:nobody-knows", "nobody:gpt-5", "gpt-5", "test", ""])
def test_what_nobody_knows_has_no_price(model):
    assert LISTED.worst_case(model, 10, 10) is None
    assert LISTED.cost(model, input_tokens=10, output_tokens=10) is None
    assert not LISTED.is_priced(model)
