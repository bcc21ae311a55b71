"""Decides a request for approval: of an episode, of an output, or of a step of a workflow.

Who may not decide, or decides too late, is refused at once, as far as the journal says so.
Otherwise a durable command is sent, and a node checks again: another decision may be faster.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args
from uuid import uuid4

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from engine.app.outputs import plan_hash as hash_of
from engine.episodes.episode import fold
from engine.errors import BadRequest, Refused, Unencodable
from engine.outputs.decide import answered
from engine.outputs.requests import read_output
from engine.validation import KEPT_BYTES_MAX, check_cause, check_hash, check_id, encode
from engine.waits.answer import answer, waits_of
from engine.waits.deciders import with_groups
from engine.waits.requests import read_episode
from engine.waits.signals import References
from engine.waits.wait import asked_in
from engine.workflows.decide import step_decided
from engine.workflows.requests import read_instance
from engine.workflows.steps import INPUTS_BYTES_MAX
from streams.clock import Clock, SystemClock
from streams.json import NOTHING
from streams.model.commands import Decide, DecideStep, Verdict
from streams.ports.all import Ports
from streams.subjects import Stack
from streams.tracing import traceparent

_CLOCK: Final = SystemClock()

TargetKind: TypeAlias = Literal["episode", "output", "step"]


class ApprovalTarget(msgspec.Struct, frozen=True):
    """What asks for approval. Who uses it refuses an impossible kind or id as `BadRequest`."""

    kind: TargetKind
    id: str
    """Of the episode; of an output its key, of a step that of its instance."""
    step: str = ""
    """Of the instance; empty: no step asks."""

    def check(self) -> None:
        """Raise `BadRequest` if nothing can be so; it names the field."""
        if self.kind not in get_args(TargetKind):  # guard: target-can-be
            raise BadRequest(field="kind", problem=f"{self.kind!r}; use episode, output or step")
        if self.kind != "output":
            check_id("id", self.id)

    def __str__(self) -> str:
        if self.kind == "step":
            return f"step {self.step!r} of instance {self.id}"
        return f"output {self.id!r}" if self.kind == "output" else f"episode {self.id}"

    def subject(self, stack: Stack) -> str:
        """Return where its journal is.

        Raises:
            BadRequest: there is no such kind, or no id can be so; the error names the field.
            BadName: no output can have such a key.
        """
        self.check()
        at = {"episode": stack.episode, "output": stack.output, "step": stack.workflow}
        return at[self.kind](self.id)


async def decide_request(
    ports: Ports,
    target: ApprovalTarget,
    verdict: Literal["approve", "deny"],
    *,
    plan_hash: str,
    by: str,
    reason: str = "",
    plan: object = UNSET,
    clock: Clock = _CLOCK,
) -> str:
    """Approve or deny what waits for approval, and return the decision's id.

    The decision is durable when this returns, and takes effect unless somebody else decides first:
    the journal names the id of the decision that stands. An episode goes on with its answer as soon
    as a node of its actor has room; the strategy gets a denial as a `Failure` of class `denied`,
    which by default cancels the episode. An output is delivered or rejected; a step runs or fails.

    Args:
        plan_hash: of what is decided on, 64 hex digits: of the episode's plan, of the output's
            payload, or of all inputs of the step.
        by: who decides: 1 to 200 characters; one of the approvers, if the request names any.
        reason: why, for people and for the strategy: up to 4,000 characters.
        plan: what is approved instead, where the request allows that: any JSON value of up to
            256 KiB; of a step, a list with a JSON object for each item, of up to 512 KiB in all.
            Default: the plan as it is.
        clock: what the time is, by default the machine's.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        BadName: no output can have such a key.
        Refused: it is not allowed; the message says why.
    """
    target.check()
    if verdict not in set(Verdict):
        raise BadRequest(field="verdict", problem=f"{verdict!r}; use approve or deny")
    check_hash("plan_hash", plan_hash)
    check_cause(by, reason)
    edited_hash, edited_plan = _edit_of(target, verdict, plan)
    said = Decide(
        actor_id="",  # The journal says whose request it is.
        episode_id="",
        id=uuid4().hex,
        verdict=Verdict(verdict),
        plan_hash=plan_hash,
        by=by,
        reason=reason,
        edited_hash=edited_hash,
        edited_plan=edited_plan,
    )
    command: Decide | DecideStep
    match target.kind:
        case "episode":
            command = await _of_episode(ports, target, said, clock)
        case "output":
            command = await _of_output(ports, target, said, clock)
        case "step":
            command = await _of_step(ports, target, said, clock)
    await ports.commands.send(command, id=f"decide.{command.id}", trace=traceparent())
    return command.id


def _edit_of(target: ApprovalTarget, verdict: str, plan: object) -> tuple[str, msgspec.Raw]:
    """Return hash and JSON of what is approved instead; empty: nothing else."""
    if plan is UNSET:
        return "", NOTHING
    if verdict != Verdict.APPROVE:
        raise BadRequest(field="plan", problem="only an approval may change it; leave it out")
    if target.kind == "step" and not isinstance(plan, list | tuple):
        raise BadRequest(field="plan", problem=f"{plan!r} is not a list of JSON objects")
    bytes_max = INPUTS_BYTES_MAX if target.kind == "step" else KEPT_BYTES_MAX
    try:
        edited = encode(plan, what="plan", bytes_max=bytes_max)
    except Unencodable as error:  # guard: edited-output-could-be-proposed
        raise BadRequest(field="plan", problem=str(error)) from error
    return hash_of(edited), edited


async def _of_episode(ports: Ports, target: ApprovalTarget, said: Decide, clock: Clock) -> Decide:
    records = await read_episode(ports, target.id)
    asked = [each.blocked for each in waits_of(records) if each.blocked.event.approval]
    opened = fold(records).opened
    if not asked or opened is None:
        raise Refused("it does not ask for approval" if opened else "there is no such episode")
    request = asked[-1].reference
    command = replace(
        said,
        actor_id=opened.actor_id,
        episode_id=target.id,
        step_no=asked[-1].step_no,
        # It is one of them at least, also if its own node has not counted it yet.
        # guard: sharers-counted-at-decision
        request_no=max(1, await References(ports, clock).newest_no(request)) if request else 0,
    )
    checked = await with_groups(ports, clock, command, asked_in(records))
    answer(records, checked, at=clock.now())
    return command


async def _of_output(ports: Ports, target: ApprovalTarget, said: Decide, clock: Clock) -> Decide:
    output, proposed = await read_output(ports, target.id)
    command = replace(
        said,
        actor_id=proposed.actor_id,
        episode_id=proposed.episode_id,
        output_key=target.id,
        round_no=output.round_no,  # guard: decision-sent-with-round
    )
    asked = None if output.pending is None else output.pending.terms
    checked = await with_groups(ports, clock, command, asked)
    answered(output, checked, at=clock.now())
    return command


async def _of_step(ports: Ports, target: ApprovalTarget, said: Decide, clock: Clock) -> DecideStep:
    instance = await read_instance(ports, target.id)
    inputs = msgspec.json.decode(said.edited_plan, type=tuple[msgspec.Raw, ...] | None)
    command = DecideStep(
        workflow=instance.begun.spec.name,
        instance_id=target.id,
        id=said.id,
        step=target.step,
        verdict=said.verdict,
        plan_hash=said.plan_hash,
        by=said.by,
        reason=said.reason,
        edited_hash=said.edited_hash,
        edited_inputs=inputs or (),
    )
    step = instance.steps.get(target.step)
    asked = None if step is None or step.asked is None else step.asked.approval
    checked = await with_groups(ports, clock, command, asked)
    step_decided(instance, checked, at=clock.now())
    return command
