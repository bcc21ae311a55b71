"""What a mail looks like, from an output's payload. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final

import msgspec

RECIPIENTS_MAX: Final = 100
"""Most recipients of one mail: as many as every server must take (RFC 5321, 4.5.3.1.8)."""


class Mail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The payload of an output that is a mail."""

    to: str | tuple[str, ...] = ()
    """Addresses, with or without names: `ann@example.com`, `Ann <ann@example.com>`."""
    subject: str
    text: str
    """The mail for those who read text; `html` must say the same."""
    html: str = ""


def recipients_of(mail: Mail, *, default: Sequence[str]) -> Sequence[Address]:
    """Return whom `mail` goes to, or `default` if it does not say.

    Raises:
        ValueError: there is nobody, somebody without an address, or more than `RECIPIENTS_MAX`.
    """
    given = (mail.to,) if isinstance(mail.to, str) else mail.to
    try:
        found = [address for each in given or default for address in addresses(each)]
    except ValueError as error:
        raise ValueError(f"to: {error}") from error
    if not 1 <= len(found) <= RECIPIENTS_MAX:
        raise ValueError(f"to: {len(found)} recipients; use 1 to {RECIPIENTS_MAX}")
    return found


def addresses(text: str) -> Sequence[Address]:
    """Return the addresses in `text`.

    Raises:
        ValueError: it is not made of addresses.
    """
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
    """Return `mail` as a message that is the same one as any other with this `id`.

    Raises:
        ValueError: its subject has several lines.
    """
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
    # Whoever is away answers no machine (RFC 3834).
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text)
    if mail.html:
        message.add_alternative(mail.html, subtype="html")
    return message


def _one_line(text: str) -> str:
    if len(text.splitlines()) > 1 or text.endswith(("\r", "\n")):
        raise ValueError("more than one line")
    return text
