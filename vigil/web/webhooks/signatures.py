"""Who has sent a delivery: whether one of the secrets of a webhook has signed it. Pure.

Each scheme is the vendor's:

* `github`: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
* `standard`: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
* `pagerduty`: https://developer.pagerduty.com/docs/verifying-webhook-signatures
* `grafana`: https://grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/integrations/webhook-notifier/#hmac-signature
* `hmac`: HMAC-SHA256 of the body in a header of one's own, in hex
* `bearer`, `basic`: RFC 6750, RFC 7617; nothing is signed, the secret itself is sent

Secrets are compared in a time that tells nothing of them.
"""

from __future__ import annotations

import base64
import hmac
from binascii import Error as NotBase64
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from engine.adapters.secret import ID, SIGNATURE, TIMESTAMP, keys_of, signed_headers
from vigil.web.webhooks.mapping import WebhookDelivery

Scheme: TypeAlias = Literal["github", "standard", "pagerduty", "grafana", "hmac", "bearer", "basic"]

SCHEMES: Final[tuple[Scheme, ...]] = get_args(Scheme)

TOLERANCE_S: Final = 300
"""How far the time of a signature may be from ours, in seconds."""

SIGNATURES_MAX: Final = 16
"""Most signatures of a delivery that are looked at."""

GITHUB_HEADER: Final = "x-hub-signature-256"
PAGERDUTY_HEADER: Final = "x-pagerduty-signature"
GRAFANA_HEADER: Final = "x-grafana-alerting-signature"

SECONDS_DIGITS_MAX: Final = 12

UNSIGNED: Final = "no signature of it fits"
"""Why a delivery is refused; which part does not fit is nobody's business."""


class Signing(msgspec.Struct, frozen=True, kw_only=True):
    """How the deliveries of a webhook are signed."""

    scheme: Scheme
    header: str = ""
    """The header that has the signature, in lower case; empty: that of the scheme."""
    timestamp_header: str = ""
    """The header that has the time, of `grafana`, in lower case; empty: it signs no time."""
    prefix: str = ""
    """What stands before the signature, of `hmac`, such as `sha256=`."""
    user: str = ""
    """The user of `basic`."""


def problem_of(
    signing: Signing, secrets: Sequence[str], delivery: WebhookDelivery, *, now: datetime
) -> str:
    """Return why a delivery is not believed, in words; empty: one of `secrets` has signed it."""
    match signing.scheme:
        case "github":
            given = _prefixed(delivery, GITHUB_HEADER, "sha256=")
            return _fits(given, [_hex(each, delivery.body) for each in secrets])
        case "hmac":
            given = _prefixed(delivery, signing.header, signing.prefix)
            return _fits(given, [_hex(each, delivery.body) for each in secrets])
        case "pagerduty":
            said = delivery.headers.get(PAGERDUTY_HEADER, "").split(",")[:SIGNATURES_MAX]
            given = [each.strip().removeprefix("v1=") for each in said if "v1=" in each]
            return _fits(given, [_hex(each, delivery.body) for each in secrets])
        case "grafana":
            return _problem_of_grafana(signing, secrets, delivery, now=now)
        case "standard":
            return _problem_of_standard(secrets, delivery, now=now)
        case "bearer":
            kind, _, token = delivery.headers.get("authorization", "").partition(" ")
            return _fits([token.strip()] if kind.lower() == "bearer" else [], secrets)
        case "basic":
            return _fits(_of_basic(delivery), [f"{signing.user}:{each}" for each in secrets])


def _problem_of_grafana(
    signing: Signing, secrets: Sequence[str], delivery: WebhookDelivery, *, now: datetime
) -> str:
    signed = delivery.body
    if signing.timestamp_header:
        time = delivery.headers.get(signing.timestamp_header, "")
        if problem := problem_of_time(time, now=now):
            return problem
        signed = b":".join((time.encode(), signed))
    given = delivery.headers.get(signing.header or GRAFANA_HEADER, "")
    return _fits([given.strip()], [_hex(each, signed) for each in secrets])


def _problem_of_standard(
    secrets: Sequence[str], delivery: WebhookDelivery, *, now: datetime
) -> str:
    id_, time, said = (delivery.headers.get(each, "") for each in (ID, TIMESTAMP, SIGNATURE))
    if problem := problem_of_time(time, now=now):
        return problem
    keys = [key for each in secrets for key in keys_of(each)]
    at = datetime.fromtimestamp(int(time), UTC)
    wanted = signed_headers(keys, id=id_, at=at, body=delivery.body)[SIGNATURE].split()
    return _fits(said.split()[:SIGNATURES_MAX], wanted)


def problem_of_time(text: str, *, now: datetime) -> str:
    """Return why a time of a signature is not believed, in words; empty: it is near enough."""
    is_count = text.isascii() and text.isdigit() and len(text) <= SECONDS_DIGITS_MAX
    if not is_count or str(int(text)) != text:
        return "its time is no count of seconds"
    if abs(now.timestamp() - int(text)) > TOLERANCE_S:  # guard: old-signature-refused
        return f"its time is over {TOLERANCE_S} s from ours: it is old, or a clock is wrong"
    return ""


def _prefixed(delivery: WebhookDelivery, header: str, prefix: str) -> list[str]:
    given = delivery.headers.get(header, "").strip()
    return [given.removeprefix(prefix)] if given.startswith(prefix) else []


def _of_basic(delivery: WebhookDelivery) -> list[str]:
    kind, _, text = delivery.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return []
    try:
        return [base64.b64decode(text.strip(), validate=True).decode()]
    except (NotBase64, ValueError):
        return []


def _hex(secret: str, signed: bytes) -> str:
    return hmac.new(secret.encode(), signed, sha256).hexdigest()


def _fits(given: Sequence[str], wanted: Sequence[str]) -> str:
    """Return why none of `given` is one of `wanted`; as bytes, since a header may have any."""
    pairs = [
        (one.encode(errors="surrogateescape"), other.encode()) for one in given for other in wanted
    ]
    # guard: delivery-must-be-signed
    return "" if sum(hmac.compare_digest(*each) for each in pairs) else UNSIGNED
