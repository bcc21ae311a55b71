"""Adapters that come with the engine: outputs as requests, mails, chat messages and NATS messages.

App(outputs={
    "pager": Webhook("https://pager.example/alerts", secret=env("PAGER_SECRET")),
    "mail": Email("smtp.example.com", sender="vigil@example.com"),
    "chat": Slack(env("SLACK_URL")),
    "orders": Subject("orders.checked"),
})
"""

from engine.adapters.email import Email
from engine.adapters.secret import Secret, env
from engine.adapters.slack import Slack
from engine.adapters.subject import Subject
from engine.adapters.webhook import Webhook

__all__ = ["Email", "Secret", "Slack", "Subject", "Webhook", "env"]
