"""Adapters that come with Vigil: outputs as requests, mails, chat messages and NATS messages.

`App(outputs={"pager": Webhook("https://pager.example/alerts", secret=env("PAGER_SECRET"))})`. Your
own needs nothing of this module: implement `vigil.OutputAdapter`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from engine.adapters.email import Email
    from engine.adapters.secret import Secret, env
    from engine.adapters.slack import Slack
    from engine.adapters.subject import Subject
    from engine.adapters.webhook import Webhook

__all__ = ["Email", "Secret", "Slack", "Subject", "Webhook", "env"]

_HOMES: Final = {
    "engine.adapters.email": "Email",
    "engine.adapters.secret": "Secret env",
    "engine.adapters.slack": "Slack",
    "engine.adapters.subject": "Subject",
    "engine.adapters.webhook": "Webhook",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
