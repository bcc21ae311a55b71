"""What has the instances of a workflow go on, on one node."""

from __future__ import annotations

from engine.runtime.context import ActorContext
from engine.runtime.service import Service
from engine.workflows.effector import Effector
from engine.workflows.store import InstanceStore
from engine.workflows.worker import InstanceHandler, WorkflowWorker


def services_for(context: ActorContext) -> list[Service]:
    """Return what takes the commands to a workflow's instances, if the actor begins a workflow."""
    workflow = context.starts_workflow
    if workflow is None:
        return []
    catalog, ports, clock = context.catalog, context.ports, context.clock
    effector = Effector(catalog, ports, clock, context.node)
    store = InstanceStore(ports, context.writer_ids)
    handler = InstanceHandler(workflow, catalog, context.revisions, clock, store, effector)
    return [WorkflowWorker(context, handler, context.permits.runs).service()]
