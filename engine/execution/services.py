"""What runs an actor's episodes on one node."""

from __future__ import annotations

from engine.app.workflow_plan import workflow_of
from engine.execution.commands import AnswerConsumer, RunConsumer
from engine.outputs.pool import OutputContext
from engine.runtime.consumer import Queue, consumer_service
from engine.runtime.service import Service


def services_for(context: OutputContext) -> list[Service]:
    """Return what runs one actor's episodes, and what takes what is said to them.

    What a workflow was to begin is for a node that has the workflow.
    """
    actor_id, commands = context.actor.id, context.ports.commands
    if context.is_fallback and workflow_of(actor_id) is not None:
        return []
    runs, clock = context.permits.runs, context.clock
    runner, answers = RunConsumer(context), AnswerConsumer(context)
    calls = Queue(
        open=lambda: commands.open(actor_id), labels={"actor": actor_id, "queue": "commands"}
    )
    said = Queue(
        open=lambda: commands.open_attending(actor_id), labels={"actor": actor_id, "queue": "said"}
    )
    return [
        consumer_service(calls, runner.handle, room=context.slots, permit=runs, clock=clock),
        consumer_service(said, answers.handle, room=answers.room, permit=runs, clock=clock),
    ]
