"""The file that names the webhooks of a console: what sends to each, and how that is believed.

    # webhooks.toml
    [webhooks.github]
    source = "github"
    secret = "env:GITHUB_WEBHOOK_SECRET"

All of it is read and checked when the console starts; what cannot be is one line that names the
field. Secrets are looked up for each delivery, so that they can change without a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pydantic import Field

from engine.adapters.secret import env, keys_of
from engine.app.outputs import DeliveryFailed
from engine.definitions import format_of, read
from engine.errors import BadDefinition
from engine.validation import Listed, Strict, parsed
from streams.errors import BadName
from streams.tokens import event_name
from vigil.errors import Mistake, Trouble
from vigil.web.webhooks.alerts import alerts_of
from vigil.web.webhooks.cloud_events import of_cloud_events
from vigil.web.webhooks.mapping import (
    MappedEvent,
    MapsDelivery,
    WebhookDelivery,
    as_id,
    checked,
    object_of,
)
from vigil.web.webhooks.own import own_mapping
from vigil.web.webhooks.services import WEBHOOK_ID, of_github, of_pagerduty, of_standard
from vigil.web.webhooks.signatures import Scheme, Signing, problem_of

WEBHOOKS_MAX: Final = 100
"""Most webhooks of a file."""

SECRETS_MAX: Final = 8
"""Most secrets of a webhook, so that they can be changed one after the other."""

SECRET_CHARS_MIN: Final = 16
"""Shortest secret, in characters."""

SECRET_BYTES_MAX: Final = 4_096
"""Longest file with a secret that is read, in bytes."""

Source: TypeAlias = Literal[
    "alertmanager", "grafana", "github", "pagerduty", "cloud_events", "standard", "plain", "own"
]

USUAL: Final[Mapping[Source, Scheme]] = {
    "alertmanager": "bearer",
    "grafana": "grafana",
    "github": "github",
    "pagerduty": "pagerduty",
    "standard": "standard",
}
"""Source → the scheme of its signatures, unless the file says another."""

_MAPPINGS: Final[Mapping[Source, MapsDelivery]] = {
    "alertmanager": alerts_of,
    "grafana": alerts_of,
    "github": of_github,
    "pagerduty": of_pagerduty,
    "cloud_events": of_cloud_events,
    "standard": of_standard,
}


class WebhookSpec(Strict):
    """A webhook, as the file has it."""

    source: Literal[
        "alertmanager", "grafana", "github", "pagerduty", "cloud_events", "standard", "plain", "own"
    ]
    scheme: (
        Literal["github", "standard", "pagerduty", "grafana", "hmac", "bearer", "basic"] | None
    ) = None
    secret: str = ""
    secrets: Listed[str] = ()
    header: str = ""
    timestamp_header: str = ""
    prefix: str = ""
    user: str = ""
    event: str = ""
    id: str = ""
    each: str = ""
    payload: str = ""


class WebhooksSpec(Strict):
    """The file."""

    webhooks: dict[str, WebhookSpec] = Field(max_length=WEBHOOKS_MAX)


@dataclass(frozen=True)
class InboundWebhook:
    """A webhook: who may send to it, and what becomes of that."""

    name: str
    signing: Signing | None
    """None: only who has a token of Vigil."""
    secrets: Sequence[Callable[[], str]]
    maps: MapsDelivery

    def problem(self, delivery: WebhookDelivery, *, now: datetime) -> str:
        """Return why a delivery is not believed, in words; empty: its source has signed it.

        Raises:
            Trouble: no secret can be read now.
        """
        if self.signing is None:
            return "it takes a token with the scope events:publish"
        return problem_of(self.signing, _told(self.name, self.secrets), delivery, now=now)

    def events(self, delivery: WebhookDelivery) -> Sequence[MappedEvent]:
        """Return the events of a delivery; their ids begin with the name of the webhook.

        So no source can say what another one has said before it. Raises `BadDelivery`.
        """
        return checked(
            [
                MappedEvent(
                    name=each.name,
                    payload=each.payload,
                    id=as_id(self.name, each.id) if each.id else "",  # guard: ids-of-own-source
                )
                for each in self.maps(delivery)
            ]
        )


Webhooks: TypeAlias = Mapping[str, InboundWebhook]
"""Name, as the path has it → the webhook."""


def read_webhooks(path: str | Path) -> Webhooks:
    """Return the webhooks of a file in TOML, YAML or JSON.

    Raises:
        Mistake: something in it cannot be; the error is one line that names the field.
        Trouble: it cannot be read.
    """
    file = Path(path)
    try:
        text = file.read_bytes()
    except OSError as error:
        raise Trouble(f"{file}: {error.strerror or error}") from error
    try:
        said = parsed(WebhooksSpec, read(text, format_of(file.name)))
    except BadDefinition as error:
        raise Mistake(f"{file.name}: {error}") from error
    found: dict[str, InboundWebhook] = {}
    for name, spec in said.webhooks.items():
        try:
            found[name] = webhook_of(name, spec, folder=file.parent)
        except ValueError as error:
            raise Mistake(f"{file.name}: webhooks.{name}: {error}") from error
    return found


def webhook_of(name: str, spec: WebhookSpec, *, folder: Path) -> InboundWebhook:
    """Return a webhook; a `ValueError` says what cannot be, and never a secret."""
    try:
        event_name(name)
    except BadName as error:
        raise ValueError(f"it cannot be called so: {error}") from error
    given = [spec.secret] if spec.secret else list(spec.secrets)
    if spec.secret and spec.secrets:
        raise ValueError("secret: write secret or secrets, not both")
    if len(given) > SECRETS_MAX:
        raise ValueError(f"secrets: {len(given)}, the limit is {SECRETS_MAX}")
    signing = _signing(spec)
    if signing is None and given:
        raise ValueError(f"scheme: say how {spec.source} signs with the secret: hmac, bearer, …")
    if signing is not None and not given:
        raise ValueError("secret: write `env:NAME` or `file:PATH`, as deliveries are signed")
    secrets = [secret_named(each, folder) for each in given]
    for each in secrets:
        _check_secret(each(), signing)
    return InboundWebhook(name, signing, secrets, _mapping(name, spec))


def _signing(spec: WebhookSpec) -> Signing | None:
    scheme = spec.scheme or (USUAL.get(spec.source) if spec.secret or spec.secrets else None)
    takes: Mapping[str, Sequence[str]] = {
        "header": ("hmac", "grafana"),
        "timestamp_header": ("grafana",),
        "prefix": ("hmac",),
        "user": ("basic",),
    }
    for field, schemes in takes.items():
        if getattr(spec, field) and scheme not in schemes:
            raise ValueError(f"{field}: only the scheme {' or '.join(schemes)} takes it")
    if scheme is None:
        return None
    for field, needed_by in {"header": "hmac", "user": "basic"}.items():
        if scheme == needed_by and not getattr(spec, field):
            raise ValueError(f"{field}: write it, as the scheme is {scheme}")
    return Signing(
        scheme=scheme,
        header=spec.header.lower(),
        timestamp_header=spec.timestamp_header.lower(),
        prefix=spec.prefix,
        user=spec.user,
    )


def _mapping(name: str, spec: WebhookSpec) -> MapsDelivery:
    if spec.source == "own":
        if not spec.event:
            raise ValueError("event: write it, as the source is own")
        payload = spec.payload or ("item" if spec.each else "body")
        return own_mapping(event=spec.event, id=spec.id, each=spec.each, payload=payload).events
    for field in ("event", "id", "each", "payload"):
        if getattr(spec, field):
            raise ValueError(f"{field}: only the source own takes it")
    if spec.source == "plain":
        return plain_as(name)
    return _MAPPINGS[spec.source]


def plain_as(name: str) -> MapsDelivery:
    """Return a mapping to the event `name`, whose payload is the body.

    Its id is the header `webhook-id`, or else `Idempotency-Key`.
    """

    def plain(delivery: WebhookDelivery) -> Sequence[MappedEvent]:
        said = (delivery.headers.get(each, "") for each in (WEBHOOK_ID, "idempotency-key"))
        id_ = next(filter(None, said), "")
        return [MappedEvent(name=name, payload=object_of(delivery.body), id=id_)]

    return plain


def secret_named(text: str, folder: Path) -> Callable[[], str]:
    """Return what looks a secret up; it raises `ValueError`, without the secret."""
    kind, _, where = text.partition(":")
    if not where or kind not in {"env", "file"}:  # guard: no-secret-in-the-file
        raise ValueError("secret: write `env:NAME` or `file:PATH`, not the secret itself")
    if kind == "file":
        return lambda: _of_file(folder / where)
    variable = env(where)

    def of_variable() -> str:
        try:
            return variable()
        except DeliveryFailed as error:
            raise ValueError(f"secret: {error.detail}") from error

    return of_variable


def _of_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(SECRET_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ValueError(f"secret: {path}: {reason}") from error


def _check_secret(secret: str, signing: Signing | None) -> None:
    if signing is not None and signing.scheme == "standard":
        try:
            keys_of(secret)
        except ValueError as error:
            raise ValueError(f"secret: {error}") from error
    elif len(secret) < SECRET_CHARS_MIN:  # guard: short-webhook-secret-refused
        raise ValueError(f"secret: shorter than {SECRET_CHARS_MIN} characters")


def _told(name: str, secrets: Sequence[Callable[[], str]]) -> list[str]:
    """Return the secrets of now; an empty one would sign anything, and is left out."""
    try:
        found = [each() for each in secrets]
    except ValueError as error:
        raise Trouble(f"webhook {name}: {error}") from error
    return [
        each
        for each in found
        if len(each) >= SECRET_CHARS_MIN  # guard: emptied-secret-signs-nothing
    ]
