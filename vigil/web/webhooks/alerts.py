"""Alerts of Prometheus Alertmanager and of Grafana: an event for each alert of a group. Pure.

`alert.firing` and `alert.resolved`, with the labels and annotations of the alert and what is known
of its group. An alert that is told of again, as both systems do while it fires, has the same id:
its fingerprint, when it began, and its status.

* https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
* https://grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/integrations/webhook-notifier/
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from vigil.web.webhooks.mapping import MappedEvent, WebhookDelivery, as_id, decoded

STILL: Final = "0001-01-01T00:00:00Z"
"""What both send as the end of an alert that fires."""

_FINGERPRINT_BYTES: Final = 8


class Alert(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An alert of a group. What only Grafana sends is None where Alertmanager does."""

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    starts_at: str
    ends_at: str = ""
    fingerprint: str = ""
    generator_url: str = msgspec.field(name="generatorURL", default="")
    silence_url: str | None = msgspec.field(name="silenceURL", default=None)
    dashboard_url: str | None = msgspec.field(name="dashboardURL", default=None)
    panel_url: str | None = msgspec.field(name="panelURL", default=None)
    values: dict[str, float | None] | None = None


class AlertGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What both send: the alerts of a group."""

    receiver: str = ""
    group_key: str = ""
    group_labels: dict[str, str] = {}
    external_url: str = msgspec.field(name="externalURL", default="")
    truncated_alerts: int = 0
    alerts: tuple[Alert, ...]


def alerts_of(delivery: WebhookDelivery) -> Sequence[MappedEvent]:
    """Return an event for each alert of a group."""
    group = decoded(delivery.body, AlertGroup)
    return [
        MappedEvent(
            name=f"alert.{each.status}",
            payload=_payload(group, each),
            id=as_id(_fingerprint(each), each.starts_at, each.status),
        )
        for each in group.alerts
    ]


def _payload(group: AlertGroup, alert: Alert) -> dict[str, Any]:
    of_grafana = {
        "silence_url": alert.silence_url,
        "dashboard_url": alert.dashboard_url,
        "panel_url": alert.panel_url,
        "values": alert.values,
    }
    return {
        "status": alert.status,
        "labels": alert.labels,
        "annotations": alert.annotations,
        "starts_at": alert.starts_at,
        "ends_at": None if alert.ends_at in ("", STILL) else alert.ends_at,
        "fingerprint": _fingerprint(alert),
        "generator_url": alert.generator_url,
        "receiver": group.receiver,
        "group_key": group.group_key,
        "group_labels": group.group_labels,
        "external_url": group.external_url,
        "truncated_alerts": group.truncated_alerts,
        **{name: value for name, value in of_grafana.items() if value is not None},
    }


def _fingerprint(alert: Alert) -> str:
    """Return what tells an alert from others; Alertmanager before 0.16 does not send it."""
    if alert.fingerprint:
        return alert.fingerprint
    labels = msgspec.json.encode(sorted(alert.labels.items()))
    return hashlib.blake2b(labels, digest_size=_FINGERPRINT_BYTES).hexdigest()
