"""What every answer says about itself, and which requests are not even looked at. Pure rules.

A request that may change something comes from a page of ours: the browser says so itself
(`Sec-Fetch-Site`, `Origin`). A program has a token in its header, which no foreign page can add.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol
from urllib.parse import urlsplit

BODY_BYTES_MAX: Final = 1024 * 1024
"""Longest body of a request."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

HEADERS: Final[Mapping[str, str]] = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
}
"""What every answer has. Without the referrer, browsers send `Origin: null` along with forms."""


def content_policy(nonce: str) -> str:
    """Return the Content-Security-Policy of a page whose script has this nonce."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'nonce-{nonce}' 'strict-dynamic'",
            "style-src 'self'",
            "font-src 'self'",
            "connect-src 'self'",
            "img-src 'self' data:",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types vigil",
        )
    )


def why_foreign(
    method: str, headers: Mapping[str, str], *, origin: str, has_token: bool
) -> str | None:
    """Return why a request comes from elsewhere than a page of ours; None: it does not.

    Args:
        headers: by their names in small letters.
        origin: where people find the console, such as `https://vigil.example`; empty: what the
            request has as `Host` counts.
        has_token: whether it says by a header of its own who it is.
    """
    if method in SAFE_METHODS or has_token:
        return None
    site = headers.get("sec-fetch-site")
    if site is not None:
        if site in {"same-origin", "none"}:
            return None
        return f"it was sent by a page of another site (Sec-Fetch-Site: {site})"
    sent_by = headers.get("origin")
    if sent_by is None:  # guard: request-says-its-origin
        return "it says neither where it comes from nor has it a token"
    ours = origin or headers.get("host", "")
    if _host(sent_by) != _host(ours) or not _host(ours):
        return f"it was sent by a page of {sent_by}"
    return None


def local_path(text: str) -> str:
    """Return `text` if it is the address of a page of ours, and that of the overview if not."""
    parts = urlsplit(text)
    is_ours = text.startswith("/") and not text.startswith(("//", "/\\"))
    # guard: only-own-pages-led-to
    if not is_ours or parts.scheme or parts.netloc or any(each < " " for each in text):
        return "/"
    return text


def came_from(request: RequestHeaders) -> str:
    """Return the page of ours that a request was sent from; the overview if none is said."""
    parts = urlsplit(request.headers.get("referer", "/"))
    return local_path(f"{parts.path}?{parts.query}" if parts.query else parts.path)


class RequestHeaders(Protocol):
    """A request, as far as its headers tell."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By their names in small letters."""


def _host(text: str) -> str:
    parts = urlsplit(text if "//" in text else f"//{text}")
    return parts.netloc.lower()
