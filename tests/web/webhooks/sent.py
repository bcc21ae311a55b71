"""What the systems send, in the shape that their documentation gives it; values are ours.

* Alertmanager: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
* Grafana: https://grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/integrations/webhook-notifier/
* GitHub: https://docs.github.com/en/webhooks/webhook-events-and-payloads#issues
* PagerDuty: https://developer.pagerduty.com/docs/webhooks-overview, version 3
* CloudEvents: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
"""

from __future__ import annotations

from typing import Any, Final

ALERTMANAGER: Final[dict[str, Any]] = {
    "version": "4",
    "groupKey": '{}/{severity="critical"}:{alertname="ProbeFailed"}',
    "truncatedAlerts": 0,
    "status": "firing",
    "receiver": "vigil",
    "groupLabels": {"alertname": "ProbeFailed"},
    "commonLabels": {"alertname": "ProbeFailed", "severity": "critical"},
    "commonAnnotations": {"summary": "A probe fails"},
    "externalURL": "http://alertmanager.example:9093",
    "alerts": [
        {
            "status": "firing",
            "labels": {
                "alertname": "ProbeFailed",
                "instance": "https://pay.example",
                "severity": "critical",
            },
            "annotations": {"summary": "https://pay.example has been down for 5 minutes"},
            "startsAt": "2026-11-29T09:08:45.828Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus.example:9090/graph?g0.expr=probe_success+%3D%3D+0",
            "fingerprint": "1a30ba71cca2921f",
        },
        {
            "status": "resolved",
            "labels": {
                "alertname": "ProbeFailed",
                "instance": "https://shop.example",
                "severity": "critical",
            },
            "annotations": {},
            "startsAt": "2026-11-29T08:00:00Z",
            "endsAt": "2026-11-29T09:05:00Z",
            "generatorURL": "",
            "fingerprint": "7c6e0f7f0d0a1b22",
        },
    ],
}

GRAFANA: Final[dict[str, Any]] = {
    "receiver": "vigil",
    "status": "firing",
    "orgId": 1,
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "High memory usage", "zone": "us-1"},
            "annotations": {"summary": "Memory of us-1 is short"},
            "startsAt": "2026-11-29T09:51:03.157076+02:00",
            "endsAt": "0001-01-01T00:00:00Z",
            "values": {"B": 44.23, "C": 1},
            "generatorURL": "https://grafana.example/alerting/1afz29v7z/edit",
            "fingerprint": "c6eadffa33fcdf37",
            "silenceURL": "https://grafana.example/alerting/silence/new",
            "dashboardURL": "",
            "panelURL": "",
        }
    ],
    "groupLabels": {},
    "commonLabels": {},
    "commonAnnotations": {},
    "externalURL": "https://grafana.example/",
    "version": "1",
    "groupKey": "{}:{}",
    "truncatedAlerts": 0,
    "title": "[FIRING:1]",
    "state": "alerting",
    "message": "**Firing**",
}

GITHUB: Final[dict[str, Any]] = {
    "action": "opened",
    "issue": {"number": 7, "title": "The disk is full", "state": "open"},
    "repository": {"id": 1296269, "full_name": "example/shop"},
    "sender": {"login": "ann", "id": 1},
}

GITHUB_HEADERS: Final = {
    "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    "x-github-event": "issues",
    "content-type": "application/json",
}

PAGERDUTY: Final[dict[str, Any]] = {
    "event": {
        "id": "01CH754SM17TWPE2V2H4VPBRO7",
        "event_type": "incident.triggered",
        "resource_type": "incident",
        "occurred_at": "2026-11-29T09:09:01.123Z",
        "agent": {"id": "PLH1HKV", "type": "user_reference"},
        "client": {"name": "PagerDuty"},
        "data": {
            "id": "PGR0VU2",
            "type": "incident",
            "number": 2,
            "status": "triggered",
            "title": "The payments service is down",
            "service": {"id": "PF9KMXH", "summary": "Payments", "type": "service_reference"},
            "urgency": "high",
        },
    }
}

CLOUD_EVENT: Final[dict[str, Any]] = {
    "specversion": "1.0",
    "type": "com.example.disk.measured",
    "source": "/hosts/web-7",
    "subject": "disk/root",
    "id": "C234-1234-1234",
    "time": "2026-11-29T09:31:00Z",
    "comexampleextension": "value",
    "datacontenttype": "application/json",
    "data": {"used": 0.93},
}

STANDARD: Final[dict[str, Any]] = {
    "type": "invoice.paid",
    "timestamp": "2026-11-29T09:26:22.795953Z",
    "data": {"id": "in_17", "amount": 100},
}
