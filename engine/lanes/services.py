"""What gives an actor's episodes their turns on one node, or ends that they take turns."""

from __future__ import annotations

from engine.cluster.members import Membership
from engine.lanes.close import LaneCloser
from engine.lanes.scheduler import LaneScheduler
from engine.outputs.pool import OutputContext
from engine.runtime.service import Service


def services_for(context: OutputContext, members: Membership) -> list[Service]:
    """Return what schedules one actor's lane; what closes it if its episodes take no turns."""
    if not context.is_laned:
        closer = Service(LaneCloser(context).run, context.permits.runs)
        closer.is_open.set()  # Nothing depends on it.
        return [] if context.is_fallback else [closer]
    going_on = LaneScheduler(context, members, takes_causes=False).service()
    if context.is_fallback:
        return [going_on]
    return [LaneScheduler(context, members, takes_causes=True).service(), going_on]
