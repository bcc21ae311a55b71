"""Where a request may go: by name, and by the address that the name leads to."""

from __future__ import annotations

import pytest

from engine.toolbox.addresses import NotAllowed, allowed_addresses

PUBLIC = "93.184.215.14"


def destination(url: str, *hosts: str) -> str:
    found = allowed_addresses(hosts, ()).destination(url)
    return f"{found.host}:{found.port}"


def checked(*found: str, networks: tuple[str, ...] = ()) -> str:
    allowed = allowed_addresses(["api.example"], networks)
    return allowed.check(allowed.destination("https://api.example/x"), found)


@pytest.mark.parametrize(
    ("url", "host", "leads_to"),
    [
        ("https://api.example/a?b=1", "api.example", "api.example:443"),
        ("http://API.example./", "Api.Example", "api.example:80"),
        ("https://api.example:8443/", "api.example:8443", "api.example:8443"),
        ("https://a.b.example/", "*.example", "a.b.example:443"),
        ("http://[2001:db8::1]:8080/", "[2001:db8::1]:8080", "2001:db8::1:8080"),
    ],
)
def test_a_request_may_go_to_an_allowed_host(url, host, leads_to):
    assert destination(url, host) == leads_to


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://api.example.evil/", "api.example.evil:443 is none of the allowed hosts"),
        ("https://evil.example/", "evil.example:443 is none of the allowed hosts"),
        ("https://xapi.example/", "xapi.example:443 is none of the allowed hosts"),
        ("https://api.example:22/", "api.example:22 is none of the allowed hosts"),
        ("https://below.example.org/", "below.example.org:443 is none of the allowed hosts"),
        ("https://127.0.0.1/", "127.0.0.1:443 is none of the allowed hosts"),
        ("https://api.example@evil.example/", "a URL with a user or a password"),
        ("https://user:word@api.example/", "a URL with a user or a password"),
        ("file:///etc/passwd", "not a URL that begins with https:// or http:// and a host"),
        ("gopher://api.example/", "not a URL that begins with https:// or http:// and a host"),
        ("//api.example/", "not a URL that begins with https:// or http:// and a host"),
        ("https://api.example/\r\nX: y", "not a URL that begins with https:// or http:// and a"),
        ("https://api.example:port/", "not a URL: "),
        ("https://[::1", "not a URL: "),
    ],
)
def test_every_other_url_is_refused(url, problem):
    with pytest.raises(NotAllowed) as refused:
        destination(url, "api.example", "*.below.example.org")
    assert str(refused.value).startswith(problem)


def test_a_public_address_is_where_the_request_goes():
    assert checked(PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c") == PUBLIC


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",  # noqa: S104 - nobody listens there
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.8",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "5f00::1",
        "fec0::1",
        "168.63.129.16",
    ],
)
def test_an_address_that_is_not_public_is_refused_even_beside_one_that_is(address):
    with pytest.raises(NotAllowed, match=r"^api\.example leads to .*, which is not public$"):
        checked(PUBLIC, address)


def test_a_network_that_was_allowed_is_no_danger():
    assert checked("10.1.2.3", networks=("10.1.0.0/16", "fd00::/8")) == "10.1.2.3"
    with pytest.raises(NotAllowed):
        checked("10.2.2.3", networks=("10.1.0.0/16",))


def test_an_allowed_network_is_also_reached_by_addresses_that_mean_it():
    assert checked("::ffff:10.1.2.3", networks=("10.1.0.0/16",)) == "::ffff:a01:203"


def test_an_address_of_this_machine_may_be_allowed():
    assert checked("::1", networks=("::1/128",)) == "::1"


def test_a_name_that_leads_nowhere_is_refused():
    with pytest.raises(NotAllowed, match=r"^api\.example leads nowhere$"):
        checked()


@pytest.mark.parametrize(
    ("hosts", "networks", "problem"),
    [
        ("api.example", (), "hosts: 'api.example' is not a list"),
        ([], (), "hosts: [] is not a list of at least one host"),
        (["https://api.example"], (), "hosts: 'https://api.example' is no host"),
        (["*"], (), "hosts: '*' is no host"),
        (["api.example", 7], (), "hosts: 7 is no host"),
        (["api.example"], "10.0.0.0/8", "networks: '10.0.0.0/8' is not a list"),
        (["api.example"], ["10.0.0.1/8"], "networks: 10.0.0.1/8 has host bits set"),
    ],
)
def test_what_cannot_be_allowed_is_named(hosts, networks, problem):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - its text is checked
        allowed_addresses(hosts, networks)
    assert str(refused.value).startswith(problem)
