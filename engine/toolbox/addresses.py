"""Which addresses a request may go to: hosts by name, and no network of one's own. Pure.

A name is not enough: whoever owns a name decides where it leads, such as to a service of this
machine or to the cloud's own. So the addresses that it leads to must be public, unless their
network was allowed, and the request goes to the address that was checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

PORTS: Final = {"http": 80, "https": 443}
"""The ports of a host that is allowed without one."""

_HOST: Final = re.compile(r"(\*\.)?([\w.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?")

_TRANSLATED: Final = ip_network("64:ff9b::/96")
"""IPv6 addresses whose last 32 bits are an IPv4 address that a gateway goes to (RFC 6052)."""

_RESERVED: Final = (
    ip_network("192.0.0.0/24"),  # for protocols of networks (RFC 6890)
    ip_network("64:ff9b:1::/48"),  # for gateways of a network of one's own (RFC 8215)
    ip_network("5f00::/16"),  # for segment routing within a network (RFC 9602)
    ip_network("fec0::/10"),  # private, of old (RFC 3879)
    ip_network("::/96"),  # an IPv4 address, of old (RFC 4291)
    ip_network("::ffff:0:0:0/96"),  # an IPv4 address, of old (RFC 2765)
    ip_network("168.63.129.16/32"),  # the virtual machine's host on Azure
)
"""Networks that are not public, though Python takes them for it, in some versions."""


class NotAllowed(ValueError):
    """A request must not go there; the message says why, without the path."""


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where a request goes."""

    url: SplitResult
    host: str
    port: int

    @property
    def origin(self) -> str:
        """Return scheme, host and port: who is asked."""
        return f"{self.url.scheme}://{self.host}:{self.port}"


@dataclass(frozen=True)
class AllowedAddresses:
    """What an app allows."""

    hosts: tuple[str, ...]
    """In lower case: `api.example.com`, `*.example.com` for all below, `localhost:8080`."""
    networks: tuple[Network, ...] = ()
    """That names may lead to, though they are not public."""

    def destination(self, url: str) -> Destination:
        """Return where `url` leads; `NotAllowed`: nowhere that is allowed by its name."""
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").rstrip("."), parts.port
        except ValueError as error:
            raise NotAllowed(f"not a URL: {error}") from error
        if parts.scheme not in PORTS or not host or not url.isprintable() or " " in url:
            raise NotAllowed("not a URL that begins with https:// or http:// and a host")
        if parts.username is not None or parts.password is not None:  # guard: no-user-in-url
            raise NotAllowed("a URL with a user or a password")
        asked = PORTS[parts.scheme] if port is None else port
        if not any(_fits(each, host, asked) for each in self.hosts):  # guard: host-allow-list
            raise NotAllowed(f"{host}:{asked} is none of the allowed hosts")
        return Destination(url=parts, host=host, port=asked)

    def check(self, destination: Destination, found: Iterable[str]) -> str:
        """Return the address to go to, of those `found`; `NotAllowed` unless each is allowed."""
        addresses = [ip_address(each.partition("%")[0]) for each in found]
        if not addresses:
            raise NotAllowed(f"{destination.host} leads nowhere")
        for address in addresses:  # guard: every-resolved-address-checked
            if not self._may_reach(address):  # guard: public-address-only
                raise NotAllowed(f"{destination.host} leads to {address}, which is not public")
        return str(addresses[0])

    def _may_reach(self, address: Address) -> bool:
        meant = _meant_by(address)
        if _is_in(meant, self.networks):
            return True
        is_reserved = _is_in(meant, _RESERVED)
        # guard: reserved-networks
        return meant.is_global and not meant.is_multicast and not is_reserved


def allowed_addresses(hosts: Sequence[str], networks: Sequence[str]) -> AllowedAddresses:
    """Return what an app allows; `ValueError`: a host or a network cannot be."""
    if isinstance(hosts, str) or not hosts:
        raise ValueError(f"hosts: {hosts!r} is not a list of at least one host")
    given: Sequence[object] = hosts
    for host in given:
        if not isinstance(host, str) or not _HOST.fullmatch(host):
            raise ValueError(f"hosts: {host!r} is no host, such as 'api.example.com'")
    if isinstance(networks, str):
        raise ValueError(f"networks: {networks!r} is not a list")  # noqa: TRY004 - as for its values
    try:
        parsed = tuple(ip_network(each) for each in networks)
    except ValueError as error:
        raise ValueError(f"networks: {error}") from error
    return AllowedAddresses(tuple(host.lower() for host in hosts), parsed)


def _fits(allowed: str, host: str, port: int) -> bool:
    parts = _HOST.fullmatch(allowed)
    assert parts is not None, "hosts are checked when they are declared"
    below, name, said = parts.groups()
    if port != int(said[1:]) if said else port not in PORTS.values():
        return False
    name = name.strip("[]")
    return host.endswith(f".{name}") if below else host == name  # guard: names-below-allowed-host


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in each for each in networks if each.version == address.version)


def _meant_by(address: Address) -> Address:
    """Return the address that a packet to `address` ends at, where it has another within."""
    if not isinstance(address, IPv6Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address.teredo is not None:
        inner = address.teredo[1]
    if inner is None and address in _TRANSLATED:
        inner = IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address  # guard: address-in-address
