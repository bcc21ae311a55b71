"""An SMTP server on loopback, which takes mails as a test says."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from types import TracebackType

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

LOGIN = LoginPassword(b"vigil", b"hush")


@dataclass
class Mailbox:
    """Takes mails, but for what `replies` says instead, and logins of `LOGIN`."""

    replies: Mapping[str, str]
    """Recipient, or `DATA`, → what is said instead of yes."""
    port: int = 0

    def __post_init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.encrypted: list[bool] = []
        self.logins: list[str] = []

    async def handle_RCPT(self, server, session, envelope: Envelope, to, options) -> str:  # noqa: N802 - aiosmtpd's
        if to in self.replies:
            return self.replies[to]
        envelope.rcpt_tos.append(to)
        return "250 OK"

    async def handle_DATA(self, server, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if "DATA" in self.replies:
            return self.replies["DATA"]
        content = envelope.original_content
        assert content is not None
        self.mails.append(message_from_bytes(content, _class=EmailMessage, policy=default))
        self.recipients.append(list(envelope.rcpt_tos))
        self.encrypted.append(session.ssl is not None)
        return "250 OK"

    def authenticate(self, server, session, envelope, mechanism, given) -> AuthResult:
        self.logins.append(mechanism)
        return AuthResult(success=given == LOGIN, handled=False)


class Server:
    """Listens for one mailbox."""

    def __init__(
        self,
        replies: Mapping[str, str] | None = None,
        *,
        starttls: ssl.SSLContext | None = None,
        tls: ssl.SSLContext | None = None,
        asks_login: bool = False,
    ) -> None:
        self.mailbox = Mailbox(replies or {})
        self._starttls = starttls
        self._tls = tls
        self._asks_login = asks_login
        self._protocols: list[SMTP] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Mailbox:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.mailbox.port = self._server.sockets[0].getsockname()[1]
        return self.mailbox

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for protocol in self._protocols:
            transport = protocol.transport
            # Python 3.11.2 cannot abort an encrypted one that was closed before.
            if transport is not None and not transport.is_closing():
                transport.abort()
        # It forgets those whose encryption failed.
        handling = [each._handler_coroutine for each in self._protocols if each._handler_coroutine]
        for task in handling:
            task.cancel()
        if handling:
            await asyncio.wait(handling)

    def _accept(self) -> SMTP:
        self._protocols.append(
            SMTP(
                self.mailbox,
                hostname="mail.example",
                tls_context=self._starttls,
                require_starttls=self._starttls is not None,
                authenticator=self.mailbox.authenticate,
                auth_required=self._asks_login,
                auth_require_tls=self._tls is None,
            )
        )
        return self._protocols[-1]
