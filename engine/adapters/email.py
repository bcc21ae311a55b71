"""`Email`: outputs as mails over SMTP; and how a payload becomes a message."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final, Literal, TypeAlias, get_args

import aiosmtplib
import msgspec

from engine.adapters.http import is_about_tls
from engine.adapters.secret import Confidence, Secret, checked_secret, checked_timeout, checked_tls
from engine.app.outputs import DeliveryFailed, OutputAdapter, OutputView
from engine.errors import BadAdapter
from streams.clock import Clock, SystemClock

RECIPIENTS_MAX: Final = 100
"""Most recipients of one mail: as many as every server must take (RFC 5321, 4.5.3.1.8)."""


Tls: TypeAlias = Literal["starttls", "tls", "none"]

Refusals: TypeAlias = Mapping[str, aiosmtplib.SMTPResponse]
"""Refused recipient → the server's reply."""

PORTS: Final[Mapping[Tls, int]] = {"starttls": 587, "tls": 465, "none": 25}
"""Default port per `tls`."""

TIMEOUT_S: Final = 20.0
"""How long a server may take for a mail, from connecting to accepting it, in seconds."""

QUIT_S_MAX: Final = 1.0
"""Longest wait for the answer to QUIT, in seconds. By then the mail is accepted."""

REF_CHARS_MAX: Final = 512
"""Longest receiver's reference that is stored; the rest is cut."""

PORT_MAX: Final = 65_535

PERMANENT_FROM: Final = 500
"""Replies from this code on are permanent (RFC 5321, 4.2.1)."""

_LACKS: Final = frozenset({aiosmtplib.SMTPNotSupported, aiosmtplib.SMTPException})
"""The library's exceptions for features that the server lacks: STARTTLS, or logging in."""


class Mail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The payload of an output that is a mail."""

    to: str | tuple[str, ...] = ()
    """Addresses, with or without names: `ann@example.com`, `Ann <ann@example.com>`."""
    subject: str
    text: str
    """The mail for those who read text; `html` must say the same."""
    html: str = ""


def recipients_of(mail: Mail, *, default: Sequence[str]) -> Sequence[Address]:
    """Return the recipients of `mail`, or `default` if it names none; or raise `ValueError`."""
    given = (mail.to,) if isinstance(mail.to, str) else mail.to
    try:
        found = [address for each in given or default for address in addresses(each)]
    except ValueError as error:
        raise ValueError(f"to: {error}") from error
    if not 1 <= len(found) <= RECIPIENTS_MAX:
        raise ValueError(f"to: {len(found)} recipients; use 1 to {RECIPIENTS_MAX}")
    return found


def addresses(text: str) -> Sequence[Address]:
    """Return the addresses in `text`; raise `ValueError` if it is not made of addresses."""
    problem = f"{text[:80]!r} is not an address"
    try:
        header = SMTP.header_factory("to", _one_line(text))
    except IndexError as error:  # What the parser makes of an address that ends too soon.
        raise ValueError(problem) from error
    found: Sequence[Address] = header.addresses
    if header.defects or not all(each.username and each.domain for each in found):
        raise ValueError(problem)
    return found


def letter(
    mail: Mail, *, sender: Address, to: Sequence[Address], id: str, at: datetime
) -> EmailMessage:
    """Return `mail` as a message whose `Message-ID` follows from `id`, or raise `ValueError`."""
    try:
        subject = _one_line(mail.subject)
    except ValueError as error:
        raise ValueError(f"subject: {error}") from error
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = to
    message["Subject"] = subject
    message["Date"] = format_datetime(at)
    message["Message-ID"] = f"<{id}@{sender.domain}>"
    # Absence notices do not answer automatic mail (RFC 3834).
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text)
    if mail.html:
        message.add_alternative(mail.html, subtype="html")
    return message


def _one_line(text: str) -> str:
    if len(text.splitlines()) > 1 or text.endswith(("\r", "\n")):  # guard: payload-makes-no-header
        raise ValueError("more than one line")
    return text


class Email(OutputAdapter):
    """Sends each output as one mail.

    The payload is `{"to": …, "subject": …, "text": …, "html": …}`; `to` is an address or a list of
    them and optional if the adapter has a default; `html` is optional. The `Message-ID` is made
    from the idempotency key: most mailboxes show two copies of a mail as one.

    A mail is delivered when the server accepts it for at least one recipient. Refused recipients
    are listed in the receiver's reference, after the `Message-ID`, and not tried again, since the
    others would get the mail twice. Replies 4xx are tried again; replies 5xx fail at once.
    """

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        sender: str,
        to: str | Sequence[str] = (),
        tls: Tls = "starttls",
        username: Secret | None = None,
        password: Secret | None = None,
        timeout_s: float = TIMEOUT_S,
        context: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Declare the server and the sender.

        Args:
            port: None: 587 with "starttls", 465 with "tls", 25 with "none".
            sender: the address of the sender, with or without a name.
            to: recipients of mails that name none.
            tls: "starttls" encrypts before anything is sent, "tls" encrypts from the first byte,
                "none" is for servers on the same machine.
            username: None: no login.
            password: never sent with `tls="none"`.
            timeout_s: until the server has accepted the mail, in seconds. Keep it under the route's
                timeout, which cuts off the whole delivery.
            context: None: the machine's certificate authorities.
            clock: for the date of a mail.

        Raises `BadAdapter` if one of them cannot work.
        """
        if tls not in get_args(Tls):
            raise BadAdapter("Email", "tls", f"{tls!r}; use one of {get_args(Tls)}")
        self._host = _checked_host(host)
        self._port = PORTS[tls] if port is None else _checked_port(port)
        self._sender = _checked_sender(sender)
        self._to = _checked_recipients(to)
        self._tls = tls
        self._login = _checked_login(username, password, tls=tls)
        self._timeout_s = checked_timeout(timeout_s, of="Email")
        self._context = checked_tls(context, of="Email", argument="context")
        self._clock = clock or SystemClock()

    async def deliver(self, output: OutputView) -> str | None:
        """Send one mail. See `OutputAdapter.deliver`."""
        try:
            mail = msgspec.convert(output.payload, Mail)
            to = recipients_of(mail, default=self._to)
            message = letter(
                mail,
                sender=self._sender,
                to=to,
                id=output.idempotency_key,
                at=self._clock.now(),
            )
        except ValueError as error:
            raise DeliveryFailed("bad_payload", str(error), permanent=True) from error
        confidence = Confidence("Email")
        try:
            refused = await self._send(message, [each.addr_spec for each in to], confidence)
        except (aiosmtplib.SMTPException, OSError) as error:
            raise confidence.in_public(_failure(error)) from None
        return _receipt(message["Message-ID"], refused)

    async def _send(
        self, message: EmailMessage, to: Sequence[str], confidence: Confidence
    ) -> Refusals:
        smtp = self._client(confidence)
        try:
            async with asyncio.timeout(self._timeout_s):
                await smtp.connect()
                sender = self._sender.addr_spec
                refused, _ = await smtp.send_message(message, sender=sender, recipients=to)
            await _say_goodbye(smtp)
        finally:
            smtp.close()
        return refused

    def _client(self, confidence: Confidence) -> aiosmtplib.SMTP:
        username = password = None
        if self._login is not None:
            username = confidence.told(self._login[0], "username")
            password = confidence.told(self._login[1], "password")
            confidence.keep(f"\0{username}\0{password}")
        return aiosmtplib.SMTP(
            hostname=self._host,
            port=self._port,
            username=username,
            password=password,
            timeout=self._timeout_s,
            use_tls=self._tls == "tls",
            start_tls=self._tls == "starttls",  # guard: starttls-required
            tls_context=self._context,
        )


async def _say_goodbye(smtp: aiosmtplib.SMTP) -> None:
    try:
        await smtp.quit(timeout=QUIT_S_MAX)
    except (aiosmtplib.SMTPException, OSError):  # guard: accepted-mail-delivered
        return


def _checked_host(host: object) -> str:
    if not isinstance(host, str) or not host or not host.isprintable() or " " in host:
        raise BadAdapter("Email", "host", f"{host!r} is not the name of a server")
    if host.count(":") == 1:
        raise BadAdapter(
            "Email", "host", f"{host!r} has a port in it; that is an argument of its own"
        )
    return host


def _checked_port(port: object) -> int:
    if isinstance(port, int) and not isinstance(port, bool) and 1 <= port <= PORT_MAX:
        return port
    raise BadAdapter("Email", "port", f"{port!r} is not a whole number from 1 to {PORT_MAX:,}")


def _checked_sender(sender: object) -> Address:
    found = _checked_addresses(sender, argument="sender")
    if len(found) != 1:
        raise BadAdapter("Email", "sender", f"{sender!r} is not one address")
    return found[0]


def _checked_recipients(to: object) -> tuple[str, ...]:
    if not isinstance(to, str | list | tuple):
        raise BadAdapter("Email", "to", f"{to!r} is neither an address nor a list of them")
    recipients = (to,) if isinstance(to, str) else tuple(to)
    for each in recipients:
        _checked_addresses(each, argument="to")
    return recipients


def _checked_addresses(text: object, *, argument: str) -> Sequence[Address]:
    if not isinstance(text, str):
        raise BadAdapter("Email", argument, f"{text!r} is not an address")
    try:
        return addresses(text)
    except ValueError as error:
        raise BadAdapter("Email", argument, str(error)) from error


def _checked_login(
    username: Secret | None, password: Secret | None, *, tls: Tls
) -> tuple[Secret, Secret] | None:
    if username is None and password is None:
        return None
    if username is None or password is None:
        lacking = "username" if username is None else "password"
        raise BadAdapter("Email", lacking, "username and password come together")
    if tls == "none":
        raise BadAdapter("Email", "tls", '"none" would send the password in the clear')
    return (
        checked_secret(username, of="Email", argument="username"),
        checked_secret(password, of="Email", argument="password"),
    )


def _failure(error: aiosmtplib.SMTPException | OSError) -> DeliveryFailed:
    match error:
        case aiosmtplib.SMTPRecipientsRefused():
            return _nobody(error.recipients)
        case aiosmtplib.SMTPResponseException():
            return _reply(error.code, error.message)
        case _ if type(error) in _LACKS:
            return DeliveryFailed("smtp_not_supported", str(error), permanent=True)
        case TimeoutError():  # guard: mail-server-timeout
            return DeliveryFailed("delivery_timeout", str(error))
        case _ if is_about_tls(error):
            return DeliveryFailed("tls_failed", str(error))
        case _:
            return DeliveryFailed("receiver_unavailable", str(error))


def _nobody(refused: Sequence[aiosmtplib.SMTPRecipientRefused]) -> DeliveryFailed:
    """Return the failure of a mail that nobody accepted: permanent only if all refusals are."""
    softest = min(refused, key=lambda each: each.code)  # guard: partial-mail-not-given-up
    return _reply(softest.code, f"{softest.recipient}: {softest.message}")


def _reply(code: int, text: str) -> DeliveryFailed:
    return DeliveryFailed(f"smtp_{code}", text, permanent=code >= PERMANENT_FROM)


def _receipt(message_id: str, refused: Refusals) -> str:
    others = ", ".join(f"{address} ({reply.code})" for address, reply in refused.items())
    return (f"{message_id}, refused for {others}" if others else message_id)[:REF_CHARS_MAX]
