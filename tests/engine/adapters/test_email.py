"""Outputs as mails, to a server that behaves, and that does not."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from engine.adapters.email import PORTS
from tests.engine.adapters import unreliable
from tests.engine.adapters.conftest import NOW, FixedClock
from tests.engine.adapters.mailbox import LOGIN, Server
from tests.engine.adapters.samples import KEY, failure_of, free_port, output
from vigil.adapters import Email

MAIL = {"to": "ann@example.org", "subject": "disk full", "text": "host a: 93 %"}
MESSAGE_ID = f"<{KEY}@example.com>"


def email(port, **options):
    return Email(
        "127.0.0.1", port, sender="Vigil <vigil@example.com>", **{"tls": "none", **options}
    )


async def test_a_mail_says_what_the_payload_does():
    async with Server() as mailbox:
        ref = await email(mailbox.port, clock=FixedClock()).deliver(output(MAIL))
    (mail,) = mailbox.mails
    assert ref == mail["message-id"] == MESSAGE_ID
    assert (mail["from"], mail["to"]) == ("Vigil <vigil@example.com>", "ann@example.org")
    assert (mail["subject"], mail["date"].datetime) == ("disk full", NOW)
    assert mail["auto-submitted"] == "auto-generated"
    assert mail.get_content().strip() == "host a: 93 %"


async def test_a_mail_says_it_in_two_ways_and_in_any_script():
    payload = {**MAIL, "subject": "Plättchen voll ✓", "text": "ünter", "html": "<b>ünter</b>"}
    async with Server() as mailbox:
        await email(mailbox.port).deliver(output(payload))
    (mail,) = mailbox.mails
    assert mail["subject"] == "Plättchen voll ✓"
    parts = [part.get_content().strip() for part in mail.iter_parts()]
    assert parts == ["ünter", "<b>ünter</b>"]


@pytest.mark.parametrize(
    ("payload", "default", "to"),
    [
        ({"to": ["a@x.org", "Bob <b@x.org>"]}, (), ["a@x.org", "b@x.org"]),
        ({"to": "a@x.org, b@x.org"}, (), ["a@x.org", "b@x.org"]),
        ({"to": "a@x.org"}, "d@x.org", ["a@x.org"]),
        ({}, ["d@x.org", "e@x.org"], ["d@x.org", "e@x.org"]),
    ],
)
async def test_a_mail_goes_to_whom_the_payload_says_or_to_the_default(payload, default, to):
    async with Server() as mailbox:
        mail = {"subject": "s", "text": "t", **payload}
        await email(mailbox.port, to=default).deliver(output(mail))
    assert mailbox.recipients == [to]


@pytest.mark.parametrize(
    "payload",
    [
        "full",
        {},
        {**MAIL, "subject": 7},
        {**MAIL, "cc": "b@example.org"},
        {**MAIL, "to": ""},
        {**MAIL, "to": []},
        {**MAIL, "to": "ann"},
        {**MAIL, "to": "ann@"},
        {**MAIL, "to": "ann@a@b"},
        {**MAIL, "to": ["a@example.org"] * 101},
        {**MAIL, "to": "a@example.org\r\nBcc: b@example.org"},
        {**MAIL, "subject": "a\r\nBcc: b@example.org"},
        {**MAIL, "subject": "a\n"},
    ],
)
async def test_what_is_no_mail_fails_for_good(payload):
    failure = await failure_of(email(free_port()), payload)
    assert (failure.error_class, failure.permanent) == ("bad_payload", True)


@pytest.mark.parametrize(
    ("replies", "error_class", "permanent"),
    [
        ({"ann@example.org": "450 later"}, "smtp_450", False),
        ({"ann@example.org": "550 no such user"}, "smtp_550", True),
        ({"DATA": "452 full"}, "smtp_452", False),
        ({"DATA": "554 spam"}, "smtp_554", True),
    ],
)
async def test_replies_from_500_on_are_for_good(replies, error_class, permanent):
    async with Server(replies) as mailbox:
        failure = await failure_of(email(mailbox.port), MAIL)
    assert (failure.error_class, failure.permanent) == (error_class, permanent)
    assert next(iter(replies.values()))[4:] in failure.detail


async def test_a_mail_for_several_is_delivered_when_one_gets_it():
    async with Server({"b@x.org": "550 no"}) as mailbox:
        mail = {**MAIL, "to": ["a@x.org", "b@x.org"]}
        ref = await email(mailbox.port).deliver(output(mail))
    assert mailbox.recipients == [["a@x.org"]]
    assert ref == f"{MESSAGE_ID}, refused for b@x.org (550)"


async def test_a_mail_that_nobody_gets_is_not_given_up_while_somebody_may():
    async with Server({"a@x.org": "550 no", "b@x.org": "450 later"}) as mailbox:
        failure = await failure_of(email(mailbox.port), {**MAIL, "to": ["a@x.org", "b@x.org"]})
    assert (failure.error_class, failure.permanent) == ("smtp_450", False)


async def test_starttls_encrypts_before_it_logs_in(server_tls, trusting):
    async with Server(starttls=server_tls, asks_login=True) as mailbox:
        options = {"username": "vigil", "password": lambda: "hush", "context": trusting}
        await email(mailbox.port, tls="starttls", **options).deliver(output(MAIL))
    assert mailbox.encrypted == [True]
    assert len(mailbox.logins) == 1


async def test_tls_encrypts_from_the_first_byte(server_tls, trusting):
    async with Server(tls=server_tls) as mailbox:
        await email(mailbox.port, tls="tls", context=trusting).deliver(output(MAIL))
    assert len(mailbox.mails) == 1


@pytest.mark.parametrize("tls", ["starttls", "tls"])
async def test_a_certificate_that_is_not_trusted_gets_no_mail(server_tls, tls):
    async with Server(**{tls: server_tls}) as mailbox:
        failure = await failure_of(email(mailbox.port, tls=tls), MAIL)
    assert (failure.error_class, failure.permanent) == ("tls_failed", False)
    assert mailbox.mails == []


async def test_nothing_goes_on_in_the_clear_where_starttls_is_wanted():
    async with Server() as mailbox:
        failure = await failure_of(email(mailbox.port, tls="starttls"), MAIL)
    assert (failure.error_class, failure.permanent) == ("smtp_not_supported", True)
    assert mailbox.mails == []


async def test_a_wrong_password_fails_for_good(server_tls, trusting):
    async with Server(starttls=server_tls, asks_login=True) as mailbox:
        options = {"username": LOGIN.login.decode(), "password": "wrong", "context": trusting}
        failure = await failure_of(email(mailbox.port, tls="starttls", **options), MAIL)
    assert (failure.error_class, failure.permanent) == ("smtp_535", True)


async def test_a_server_that_is_not_there_is_unavailable():
    failure = await failure_of(email(free_port()), MAIL)
    assert (failure.error_class, failure.permanent) == ("receiver_unavailable", False)


@asynccontextmanager
async def serving(server: Callable[[StreamReader, StreamWriter], Awaitable[None]]):
    """Have `server` listen while the context lasts, and return its port."""
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("server", "error_class"),
    [
        (unreliable.rude, "receiver_unavailable"),
        (unreliable.busy, "smtp_421"),
        (unreliable.resets_in_the_content, "receiver_unavailable"),
        (unreliable.resets_after_the_content, "receiver_unavailable"),
    ],
)
async def test_a_server_that_does_not_take_mails_now_may_do_so_later(server, error_class):
    async with serving(server) as port:
        failure = await failure_of(email(port), MAIL)
    assert (failure.error_class, failure.permanent) == (error_class, False)


@pytest.mark.parametrize("server", [unreliable.silent, unreliable.silent_in_the_content])
async def test_a_server_that_says_nothing_is_waited_for_so_long_and_no_longer(server):
    async with serving(server) as port:
        failure = await failure_of(email(port, timeout_s=0.2), MAIL)
    assert (failure.error_class, failure.permanent) == ("delivery_timeout", False)


@pytest.mark.parametrize("server", [unreliable.silent_at_the_end, unreliable.resets_at_the_end])
async def test_a_mail_that_was_accepted_is_delivered_however_the_server_ends(server, monkeypatch):
    monkeypatch.setattr("engine.adapters.email.QUIT_S_MAX", 0.1)
    async with serving(server) as port:
        assert await email(port).deliver(output(MAIL)) == MESSAGE_ID


@pytest.mark.parametrize(
    ("host", "options", "said"),
    [
        ("", {}, "host"),
        ("a b", {}, "host"),
        ("mail.example", {"port": 0}, "port"),
        ("mail.example", {"port": 65_536}, "port"),
        ("mail.example", {"tls": "ssl"}, "tls"),
        ("mail.example", {"username": "a"}, "come together"),
        ("mail.example", {"username": "a", "password": "b", "tls": "none"}, "in the clear"),
        ("mail.example", {"sender": "nobody"}, "address"),
        ("mail.example", {"sender": "a@x.org, b@x.org"}, "sender"),
        ("mail.example", {"sender": ""}, "sender"),
        ("mail.example", {"to": "nobody"}, "address"),
        ("mail.example", {"timeout_s": -1}, "timeout_s"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(host, options, said):
    with pytest.raises(ValueError, match=said):
        Email(host, **{"sender": "vigil@example.com", **options})


@pytest.mark.parametrize(("tls", "port"), [("starttls", 587), ("tls", 465), ("none", 25)])
def test_servers_listen_where_they_usually_do(tls, port):
    assert PORTS[tls] == port
