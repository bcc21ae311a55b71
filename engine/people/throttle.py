"""How often somebody at one address may give a wrong password, in one process. Pure.

Guessing one name from many addresses is stopped by the name's own events (`login`), guessing many
names from one address by this.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

ATTEMPTS_MAX: Final = 10
"""Wrong passwords that may come from one address within `WITHIN_S`."""

WITHIN_S: Final = 300.0
"""In seconds."""

ADDRESSES_MAX: Final = 10_000
"""Addresses that are kept in mind; the one that was wrong the longest ago is forgotten."""

NETWORK_BITS: Final = 64
"""Who has one IPv6 address has all that begin with these bits."""


@dataclass
class AddressThrottle:
    """Wrong passwords by address."""

    _wrong: OrderedDict[str, tuple[float, ...]] = field(default_factory=OrderedDict)

    def wait_s(self, address: str, now_s: float) -> float:
        """Return how long the next attempt from there has to wait, in seconds; 0: not at all."""
        counting = self._counting(address, now_s)
        if len(counting) < ATTEMPTS_MAX:  # guard: address-attempts-max
            return 0.0
        return counting[-ATTEMPTS_MAX] + WITHIN_S - now_s

    def note(self, address: str, now_s: float) -> None:
        """Note a wrong password from an address; an empty one is of nobody."""
        if not address:
            return
        place = place_of(address)
        self._wrong[place] = (*self._counting(address, now_s)[1 - ATTEMPTS_MAX :], now_s)
        self._wrong.move_to_end(place)
        if len(self._wrong) > ADDRESSES_MAX:
            self._wrong.popitem(last=False)

    def forgive(self, address: str, noted_s: float) -> None:
        """Forget what was noted at a time: it was not wrong."""
        place = place_of(address)
        left = [each for each in self._wrong.get(place, ()) if each != noted_s]
        if left:
            self._wrong[place] = tuple(left)
        else:
            self._wrong.pop(place, None)

    def _counting(self, address: str, now_s: float) -> tuple[float, ...]:
        times = self._wrong.get(place_of(address), ()) if address else ()
        return tuple(each for each in times if now_s - each < WITHIN_S)


def place_of(address: str) -> str:
    """Return what counts as one address: an IPv4 address, or a network of IPv6 ones."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((parsed, NETWORK_BITS), strict=False))
