"""Limits in dollars, and prices, as an app and its actors declare them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from engine.app.actor import Actor
from engine.app.app import App
from engine.errors import DeclarationError
from streams.model.money import Price, Spending

DAY = Spending(usd="5.00")
PRICE = Price(input_per_million="0.25", output_per_million=2)


def test_limits_and_prices_are_kept_as_decimals():
    app = App(actors=[], spending=[Spending(usd=50, per="month")], prices={"openai:mine": PRICE})
    assert app.spending == (Spending(usd=Decimal(50), per="month"),)
    assert app.prices["openai:mine"].input_per_million == Decimal("0.25")
    assert app.unpriced == "refuse"
    assert Actor("monitor", spending=[DAY]).spending == (DAY,)


@pytest.mark.parametrize(
    ("spending", "problem"),
    [
        ("5", "'5' is not a list of Spending(usd=…, per=…)"),
        (DAY, "is not a list of Spending(usd=…, per=…)"),
        ([5], "5 is not a Spending(usd=…, per=…)"),
        ([Spending(usd="x")], "usd='x' is no sum of dollars"),
        ([Spending(usd=0)], "usd=0: nothing could be spent; leave it out for no limit"),
        ([Spending(usd=1, per="week")], "per='week' is not one of hour, day, month"),
        ([DAY, Spending(usd=6)], "two limits per day; leave one out"),
    ],
)
def test_an_impossible_limit_is_refused_by_actors_and_apps(spending, problem):
    for declare in (lambda: Actor("monitor", spending=spending), lambda: App(spending=spending)):
        with pytest.raises(DeclarationError) as refused:
            declare()
        assert refused.value.field == "spending"
        assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("prices", "problem"),
    [
        ([PRICE], "is not a dict of model to Price(…)"),
        ({"": PRICE}, "'' is no name of a model"),
        ({"m": 3}, "m: 3 is not a Price(input_per_million=…, output_per_million=…)"),
        (
            {"m": Price(input_per_million=-1, output_per_million=1)},
            "m: input_per_million=-1 is not from 0",
        ),
        (
            {"m": Price(input_per_million=1, output_per_million=1, cached_per_million="x")},
            "m: cached_per_million='x' is no sum",
        ),
        (
            {"openai:m": PRICE, "openai-chat:m": Price(input_per_million=9, output_per_million=9)},
            "openai-chat:m: openai:m is the same model, and has another price; leave one out",
        ),
    ],
)
def test_an_impossible_price_is_refused(prices, problem):
    with pytest.raises(DeclarationError) as refused:
        App(prices=prices)
    assert refused.value.field == "prices"
    assert problem in str(refused.value)


def test_one_price_may_stand_under_several_names_of_its_model():
    assert set(App(prices={"test": PRICE, "test:test": PRICE}).prices) == {"test", "test:test"}


def test_what_becomes_of_models_without_a_price_is_one_of_two():
    with pytest.raises(DeclarationError, match="unpriced: 'ask' is not one of refuse, zero"):
        App(unpriced="ask")
