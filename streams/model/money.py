"""Sums of US dollars, as text and decimals, and never as floats; names of models. Pure."""

from __future__ import annotations

from contextlib import suppress
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec.structs import force_setattr

from streams.model.struct import Struct

NO_USD: Final = Decimal(0)
"""No money; of a limit: there is none."""

USD_LEAST: Final = Decimal("0.000001")
"""The least that a limit may be: what is left of a budget that is used up is no "no limit"."""

USD_MAX: Final = Decimal(1_000_000_000)
"""Most that may be declared or counted: decimals of 28 digits add such sums exactly."""

USD_PLACES_MAX: Final = 12
"""Most digits behind the point of a declared sum: a token costs about 0.0000001 dollars."""

_GATEWAY: Final = "gateway/"

_SPELLINGS: Final = {
    "azure-responses": "azure",
    "gateway/chat": "openai",
    "gateway/converse": "bedrock",
    "gateway/google": "google-cloud",
    "gateway/responses": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
}
"""Prefix of a model's name that says how it is asked, too → its provider."""

_TEST: Final = "test"
"""The model for tests, which is named without a provider."""

Usd: TypeAlias = Decimal | float | int | str
"""How a sum may be declared: `"0.50"`, `0.5` or `Decimal("0.50")`."""

Per: TypeAlias = Literal["hour", "day", "month"]
"""Windows of the UTC calendar."""


def usd_of(given: object) -> Decimal:
    """Return a sum as a decimal: a float as it is written, so that 0.1 is a tenth.

    Raises:
        ValueError: it is no number that is finite, negative, or has too many digits.
    """
    try:
        usd = given if isinstance(given, Decimal) else Decimal(str(given))  # guard: usd-as-written
    except InvalidOperation as error:
        raise ValueError(f'{given!r} is no sum of dollars; write it as "0.50"') from error
    if not usd.is_finite():
        raise ValueError(f'{given!r} is no sum of dollars; write it as "0.50"')
    if not 0 <= usd <= USD_MAX:
        raise ValueError(f"{given!r} is not from 0 to {USD_MAX:,} dollars")
    exponent = usd.as_tuple().exponent
    if isinstance(exponent, int) and -exponent > USD_PLACES_MAX:
        raise ValueError(f"{given!r} has more than {USD_PLACES_MAX} digits behind the point")
    return usd


def priced_name(model: str) -> str:
    """Return the one name of a model for prices, such as `openai:gpt-5`, however it is written.

    A request may name its model as it was written, such as `openai-responses:gpt-5`, or by its
    provider.
    """
    if model == _TEST:
        return f"{_TEST}:{_TEST}"
    prefix, colon, name = model.partition(":")
    provider = _SPELLINGS.get(prefix) or prefix.removeprefix(_GATEWAY)
    return f"{_SPELLINGS.get(provider, provider)}{colon}{name}"


def kept_usd(struct: Struct, *names: str) -> None:
    """Make decimals of those fields of a struct in the making that are sums, or pairs of them.

    What is none stays, for the checks of declarations to say where it is.
    """
    for name in names:
        given = getattr(struct, name)
        if given is None or isinstance(given, Decimal):
            continue
        is_pair = isinstance(given, tuple | list)
        with suppress(ValueError):
            usd = tuple(map(usd_of, given)) if is_pair else usd_of(given)
            force_setattr(struct, name, usd)


def least_usd(one: Decimal, other: Decimal) -> Decimal:
    """Return the lower of two limits, of which 0 is none."""
    return min(one, other) if one and other else one or other


def rounded_up(usd: Usd) -> Decimal:
    """Return a sum with no more digits behind the point than may be declared."""
    return Decimal(str(usd)).quantize(Decimal(10) ** -USD_PLACES_MAX, rounding=ROUND_CEILING)


def dollars(usd: Decimal) -> str:
    """Return a sum for people: at least two digits behind the point, and none that says nothing."""
    whole, _, rest = f"{usd.normalize():f}".partition(".")
    return f"{whole}.{rest:0<2}"


class Spending(Struct, frozen=True, kw_only=True):
    """Most that requests to models may cost within a window of the UTC calendar."""

    usd: Decimal
    """US dollars. A request is made only if the most that it can cost is left."""
    per: Per = "day"
    """`hour`, `day` or `month`, of the clock in UTC."""

    if TYPE_CHECKING:  # A sum may be written as text or as a number, and is always a decimal.

        def __init__(self, *, usd: Usd, per: Per = "day") -> None: ...

    else:

        def __post_init__(self) -> None:
            kept_usd(self, "usd")


class Price(Struct, frozen=True, kw_only=True):
    """What a model costs, in US dollars for a million tokens."""

    input_per_million: Decimal
    output_per_million: Decimal
    cached_per_million: Decimal | None = None
    """Of input that the provider had from earlier requests; None: as other input."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            input_per_million: Usd,
            output_per_million: Usd,
            cached_per_million: Usd | None = None,
        ) -> None: ...

    else:

        def __post_init__(self) -> None:
            kept_usd(self, "input_per_million", "output_per_million", "cached_per_million")
