"""The log of a stack, for programs that hold a connection of their own: ports, nodes, requests.

    async with connect(url, stack=Stack(), creates=False) as ports:
        await fire(ports, "orders", "is_paid", {"order": "o-1"}, requested_by="nightly")

A program that asks or orders something needs less: `vigil.client.Client`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from engine.episodes.cancel import cancel
    from engine.episodes.fire import fire
    from engine.episodes.fork import fork
    from engine.findings.store import findings_of
    from engine.node.node import Node
    from engine.operations.census import cancel_related
    from engine.operations.decide_request import ApprovalTarget, decide_request
    from engine.operations.events.why_unheard import Unheard, why_output_unheard, why_unheard
    from engine.operations.reconcile import reconcile
    from engine.operations.settle import settle
    from engine.outputs.requests import cancel_output, retry_output
    from engine.waits.requests import resolve
    from engine.workflows.requests import (
        Beginning,
        cancel_workflow,
        read_beginning,
        resume_workflow,
        start_workflow,
    )
    from streams.jetstream import connect
    from streams.layout import Kind
    from streams.ports.all import Ports
    from streams.ports.domain_events import DomainEvent
    from streams.subjects import Stack

__all__ = [
    "ApprovalTarget", "Beginning", "DomainEvent", "Kind", "Node", "Ports", "Stack", "Unheard",
    "cancel", "cancel_output", "cancel_related", "cancel_workflow", "connect", "decide_request",
    "findings_of", "fire", "fork", "read_beginning", "reconcile", "resolve", "resume_workflow",
    "retry_output", "settle", "start_workflow", "why_output_unheard", "why_unheard",
]  # fmt: skip

_HOMES: Final = {
    "engine.episodes.cancel": "cancel",
    "engine.episodes.fire": "fire",
    "engine.episodes.fork": "fork",
    "engine.findings.store": "findings_of",
    "engine.operations.census": "cancel_related",
    "engine.operations.decide_request": "ApprovalTarget decide_request",
    "engine.operations.reconcile": "reconcile",
    "engine.operations.settle": "settle",
    "engine.operations.events.why_unheard": "Unheard why_output_unheard why_unheard",
    "engine.outputs.requests": "cancel_output retry_output",
    "engine.waits.requests": "resolve",
    "engine.workflows.requests": (
        "Beginning cancel_workflow read_beginning resume_workflow start_workflow"
    ),
    "engine.node.node": "Node",
    "streams.jetstream": "connect",
    "streams.ports.all": "Ports",
    "streams.layout": "Kind",
    "streams.subjects": "Stack",
    "streams.ports.domain_events": "DomainEvent",
}
"""Module → the public names that it has."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
