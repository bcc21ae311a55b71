"""`Slack`: outputs as chat messages, through an incoming webhook.

Mattermost, Rocket.Chat and others understand the same. Such webhooks ignore idempotency keys: after
a crash or a timeout, a message may appear twice.
"""

from __future__ import annotations

import ssl

from engine.adapters.http import TIMEOUT_S, HttpClient, check, checked_url, declared_url
from engine.adapters.secret import Confidence, Secret, checked_timeout, checked_tls
from engine.app.outputs import DeliveryFailed, OutputAdapter, OutputView
from streams.clock import Clock, SystemClock
from streams.json import exact

_CONTENT = ("text", "blocks", "attachments")


class Slack(OutputAdapter):
    """Posts each output as one message.

    The payload is a text, or Slack's message object with `text`, `blocks` or `attachments`.
    Statuses mean the same as for `Webhook`.
    """

    def __init__(
        self,
        url: Secret,
        *,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Declare the address.

        Args:
            url: of the incoming webhook. Anybody who knows it can post: keep it out of code.
            timeout_s: until the receiver answers, in seconds.
            tls: None: public certificate authorities.
            clock: for a `Retry-After` that is a date.

        Raises `BadAdapter` if one of them cannot work.
        """
        self._url = declared_url(url, of="Slack")
        self._http = HttpClient(
            timeout_s=checked_timeout(timeout_s, of="Slack"), tls=checked_tls(tls, of="Slack")
        )
        self._clock = clock or SystemClock()

    async def deliver(self, output: OutputView) -> str | None:
        """Post one message; such webhooks return no reference. See `OutputAdapter.deliver`."""
        confidence = Confidence("Slack")
        try:
            await self._post(output, confidence)
        except DeliveryFailed as failure:
            raise confidence.in_public(failure) from None
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _post(self, output: OutputView, confidence: Confidence) -> None:
        body = bytes(exact(_message(output.payload)))
        url = checked_url(confidence.told_url(self._url))
        headers = {"content-type": "application/json"}
        answer = await self._http.send("POST", url, body=body, headers=headers)
        check(answer, now=self._clock.now())


def _message(payload: object) -> object:
    if isinstance(payload, str) and payload:
        return {"text": payload}
    if isinstance(payload, dict) and any(payload.get(name) for name in _CONTENT):
        return payload
    detail = f"neither a text nor an object with one of {', '.join(_CONTENT)}"
    raise DeliveryFailed("bad_payload", detail, permanent=True)
