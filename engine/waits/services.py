"""What brings word from outside to the episodes that wait for it, on one node."""

from __future__ import annotations

from engine.dead_letters.write import DeadLetterWriter
from engine.runtime.consumer import Queue, consumer_service
from engine.runtime.context import NodeContext
from engine.runtime.permits import Permit
from engine.runtime.service import Service
from engine.waits.signal import RESOLVED
from engine.waits.signals import QUEUE, SignalConsumer, SignalRetries


def services_for(context: NodeContext, runs: Permit) -> list[Service]:
    """Return what takes the events that bring word, and the timers that have it looked at again.

    Args:
        context: of the node.
        runs: whether the node may run anything.
    """
    ports, clock = context.ports, context.clock
    means = (ports, DeadLetterWriter(ports, clock), context.tasks)
    consumer, retries = SignalConsumer(*means), SignalRetries(*means)
    events = Queue(
        open=lambda: ports.domain_events.open(QUEUE, [RESOLVED]), labels={"queue": "waits"}
    )
    due = Queue(open=lambda: ports.timers.open(QUEUE), labels={"queue": "waits_due"})
    return [
        consumer_service(events, consumer.handle, room=consumer.room, permit=runs, clock=clock),
        consumer_service(due, retries.handle, room=retries.room, permit=runs, clock=clock),
    ]
