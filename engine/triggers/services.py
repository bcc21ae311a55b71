"""What opens an actor's episodes on one node: its gates, and what comes due."""

from __future__ import annotations

from functools import partial

from engine.outputs.pool import OutputContext
from engine.runtime.consumer import Service
from engine.triggers.admit import Admission
from engine.triggers.evaluate import TriggerEvaluator
from engine.triggers.events import ForeignStreamGate, Gate, open_events
from engine.triggers.timers import TimerConsumer, TimerRouter


def services_for(context: OutputContext) -> list[Service]:
    """Return what wakes one actor; nothing if it has a lane, whose scheduler does that."""
    if context.is_laned:
        return []
    permits, admission = context.permits, Admission(context, TriggerEvaluator(context))
    due = partial(TimerConsumer, admission, TimerRouter(admission.evaluator))
    if context.is_fallback:
        return [due(takes_causes=False).service(permits.runs)]
    return [
        Gate(admission).service("events", partial(open_events, context)),
        *(
            ForeignStreamGate(admission, foreign).service()
            for foreign in context.actor.foreign_streams()
        ),
        due(takes_causes=True).service(permits.wakes),
        due(takes_causes=False).service(permits.tends),
    ]
