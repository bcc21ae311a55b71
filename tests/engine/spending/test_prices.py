"""What a request can cost, and what it has cost."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic_ai.models import infer_model

from engine.spending.prices import Prices, input_tokens_of, nobody_knows
from streams.model.money import Price, priced_name

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


@pytest.mark.parametrize(
    "model", ["openai-chat:gpt-5", "gateway/openai:gpt-5", "gateway/responses:gpt-5"]
)
def test_a_listed_price_is_found_however_the_name_is_written(model):
    assert LISTED.worst_case(model, 3_000, 10) == LISTED.worst_case("openai:gpt-5", 3_000, 10)


def test_an_own_price_comes_before_the_listed_one():
    own = Prices({"openai:gpt-5": Price(input_per_million=1, output_per_million=1)})
    assert own.worst_case("openai:gpt-5", 3, 1) == Decimal("0.000002")


@pytest.mark.parametrize("model", ["openai:nobody-knows", "nobody:gpt-5", "gpt-5", "test", ""])
def test_what_nobody_knows_has_no_price(model):
    assert LISTED.worst_case(model, 10, 10) is None
    assert LISTED.cost(model, input_tokens=10, output_tokens=10) is None
    assert not LISTED.is_priced(model)


SPELLINGS = [
    ("test", "test:test"),
    ("openai:mine", "openai:mine"),
    ("openai-chat:mine", "openai:mine"),
    ("openai-responses:mine", "openai:mine"),
    ("gateway/openai:mine", "openai:mine"),
    ("gateway/openai-chat:mine", "openai:mine"),
    ("gateway/chat:mine", "openai:mine"),
    ("gateway/responses:mine", "openai:mine"),
    ("gateway/anthropic:mine", "anthropic:mine"),
    ("anthropic:mine", "anthropic:mine"),
    ("azure:mine", "azure:mine"),
    ("azure-responses:mine", "azure:mine"),
    ("openai-decisions:mine", "openai-decisions:mine"),
]
"""How the name of a model may be written, and the name of the model that the library makes."""

UNMADE = [
    ("gateway/converse:mine", "bedrock:mine"),
    ("gateway/google:mine", "google-cloud:mine"),
    ("mine", "mine"),
    ("", ""),
]


@pytest.mark.parametrize(("written", "asked"), SPELLINGS)
def test_a_model_has_one_name_for_prices_and_requests_have_it(monkeypatch, written, asked):
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY"):
        monkeypatch.setenv(key, "none")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://none.openai.azure.com")
    monkeypatch.setenv("OPENAI_API_VERSION", "2025-01-01")
    monkeypatch.setenv("PYDANTIC_AI_GATEWAY_API_KEY", "pylf_v1_us_none")
    model = infer_model(written)
    assert f"{model.system}:{model.model_name}" == asked
    assert priced_name(written) == priced_name(asked) == asked


@pytest.mark.parametrize(("written", "named"), UNMADE)
def test_so_have_models_whose_library_is_not_here(written, named):
    assert priced_name(written) == named


@pytest.mark.parametrize(("written", "asked"), SPELLINGS)
def test_a_price_is_found_however_the_name_of_its_model_is_written(written, asked):
    for key, model in ((written, asked), (asked, written), (written, written)):
        prices = Prices({key: Price(input_per_million="3", output_per_million="15")})
        assert prices.is_own(model)
        assert prices.worst_case(model, 3_000, 500) == Decimal("0.0105")
        assert prices.cost(model, input_tokens=1, output_tokens=1) == Decimal("0.000018")
        assert not prices.is_own("openai:another")


def test_what_is_told_of_an_unknown_price_names_the_key_by_which_it_is_found():
    told = nobody_knows("openai-responses:mine")
    assert told == (
        "nobody knows the price of 'openai:mine', and a limit in dollars applies;"
        " App(prices={'openai:mine': Price(…)}), or App(unpriced=\"zero\")"
    )
