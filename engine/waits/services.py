"""What brings word from outside to the episodes that wait for it, on one node."""

from __future__ import annotations

from engine.dead_letters.write import DeadLetterWriter
from engine.runtime.consumer import Queue, consumer_service
from engine.runtime.context import NodeContext
from engine.runtime.permits import Permit
from engine.runtime.service import Service
from engine.runtime.slots import Slots
from engine.waits.signal import RESOLVED
from engine.waits.signals import IN_FLIGHT_MAX, QUEUE, SignalConsumer, SignalRetries


def services_for(context: NodeContext, runs: Permit) -> list[Service]:
    """Return what takes the events that bring word, and the timers that have it looked at again.

    Args:
        context: of the node.
        runs: whether the node may run anything.
    """
    ports, clock = context.ports, context.clock
    dead_letters = DeadLetterWriter(ports, clock)
    consumer, retries = SignalConsumer(ports, dead_letters), SignalRetries(ports, dead_letters)
    events = Queue(
        open=lambda: ports.domain_events.open(QUEUE, [RESOLVED]), labels={"queue": "waits"}
    )
    due = Queue(open=lambda: ports.timers.open(QUEUE), labels={"queue": "waits_due"})
    # Nothing takes a place: a batch is answered for before the next one is pulled.
    room = Slots(IN_FLIGHT_MAX)
    return [
        consumer_service(events, consumer.handle, room=room, permit=runs, clock=clock),
        consumer_service(due, retries.handle, room=room, permit=runs, clock=clock),
    ]
