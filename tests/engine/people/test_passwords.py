"""Passwords are hashed slowly, compared in one time, and guessed only so often from one place."""

from __future__ import annotations

import asyncio
import sys

import pytest

from engine.errors import BadRequest, Refused
from engine.people import passwords as module
from engine.people.passwords import PASSWORD_CHARS_MAX, Passwords, checked
from engine.people.throttle import (
    ADDRESSES_MAX,
    ATTEMPTS_MAX,
    WITHIN_S,
    AddressThrottle,
    place_of,
)

GOOD = "correct horse battery"


async def test_a_hash_is_of_one_password_however_it_was_typed():
    passwords = Passwords()
    composed, decomposed = "pa\u00dfwort f\u00fcr \u00c5nn", "pa\u00dfwort fu\u0308r A\u030ann"
    hash_ = await passwords.hash(composed)
    assert hash_.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert await passwords.fits(decomposed, hash_)
    assert not await passwords.fits(GOOD, hash_)
    assert hash_ != await passwords.hash(composed)


async def test_nothing_fits_where_there_is_no_password_or_no_hash():
    passwords = Passwords()
    for hash_ in ("", "x", module.NOBODYS):
        assert not await passwords.fits("", hash_)
        assert not await passwords.fits(None, hash_)
    hash_ = await passwords.hash("x" * PASSWORD_CHARS_MAX)
    assert not await passwords.fits("x" * (PASSWORD_CHARS_MAX + 1), hash_)
    assert not await passwords.fits("\ud800", hash_)


async def test_where_nobody_is_known_the_hash_of_nobody_is_compared(monkeypatch):
    compared = []
    monkeypatch.setattr(module, "_is_of", lambda _, hash_, text: compared.append(hash_) or True)
    assert not await Passwords().fits(GOOD, "")
    assert compared == [module.NOBODYS]


def test_a_password_has_some_length():
    assert checked(GOOD) == GOOD
    for wrong in ("", "x" * 11, "x" * (PASSWORD_CHARS_MAX + 1), None):
        with pytest.raises(BadRequest, match="password: it "):
            checked(wrong)


async def test_so_many_may_wait_for_a_hash(monkeypatch):
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    monkeypatch.setattr(module, "_is_of", lambda *_: True)
    passwords = Passwords()
    done = await asyncio.gather(
        *(passwords.fits(GOOD, "x") for _ in range(3)), return_exceptions=True
    )
    assert [type(each) for each in done] == [bool, bool, Refused]
    assert await passwords.fits(GOOD, "x")


async def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "argon2", None)
    with pytest.raises(BadRequest, match=r'pip install "vigil-engine\[web\]"'):
        await Passwords().hash(GOOD)


def test_an_address_may_guess_so_often_within_some_time():
    throttle = AddressThrottle()
    for number in range(ATTEMPTS_MAX):
        assert throttle.wait_s("10.0.0.7", number) == 0
        throttle.note("10.0.0.7", number)
    assert throttle.wait_s("10.0.0.7", ATTEMPTS_MAX) == WITHIN_S - ATTEMPTS_MAX
    assert throttle.wait_s("10.0.0.8", ATTEMPTS_MAX) == 0
    assert throttle.wait_s("10.0.0.7", WITHIN_S) == 0
    throttle.forgive("10.0.0.7", 3)
    assert throttle.wait_s("10.0.0.7", ATTEMPTS_MAX) == 0


def test_an_unknown_address_does_not_wait():
    throttle = AddressThrottle()
    for _ in range(ATTEMPTS_MAX + 1):
        throttle.note("", 0)
    assert throttle.wait_s("", 0) == 0


def test_a_network_of_ipv6_is_one_address():
    assert place_of("2001:db8::1") == place_of("2001:db8::ffff") == "2001:db8::/64"
    assert place_of("2001:db8:0:1::1") != place_of("2001:db8::1")
    assert place_of("::ffff:10.0.0.7") == place_of("10.0.0.7") == "10.0.0.7"
    assert place_of("unix") == "unix"
    assert place_of("fe80::1%eth0") == "fe80::/64"


def test_so_many_addresses_are_kept_in_mind():
    throttle = AddressThrottle()
    for number in range(ADDRESSES_MAX + 1):
        throttle.note(f"host-{number}", number / 1000)
    assert len(throttle._wrong) == ADDRESSES_MAX
    assert "host-0" not in throttle._wrong
