"""Workflows: steps of actors that follow from one another, as they are declared.

    review = Workflow("client_review", on=event("client.changed"), subject_key="client")
    review.step("screen", "compliance", "screen_client")
    review.step("rate", "risk", "rate_client", depends_on=["screen"],
                when=lambda trigger, prior: prior["screen"]["hit"],
                on_failure=retrying(attempts=3, backoff_s=5), compensate=("risk", "undo_rate"))
    review.step("notify", "mail", "notify_owner", depends_on=["rate"],
                for_each=lambda trigger, prior: prior["rate"]["owners"])
    review.sub("onboard", "vendor_onboarding", depends_on=["rate"])

Steps that do not depend on one another run at the same time. `input`, `when` and `for_each` get the
trigger of the workflow, and the results of all steps that theirs depends on, by name; of one that
brought none it is None. They must be deterministic: nothing but what they get may have a say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, Unpack, get_args

from engine.actor import REVISION_MAX
from engine.dedupe import Dedupe
from engine.expectation import DEFAULT_DEDUPE, WAIT_S_MAX
from engine.trigger import EventSource, On, Sources, manual
from engine.workflows.graph import Graph, cycle
from engine.workflows.step import Step, StepOptions, WorkflowCheck, checked_step

STEPS_MAX: Final = 100
"""Most steps of one workflow."""

Overlap = Literal["allow", "skip"]
"""What becomes of a cause whose subject an instance is still busy with: it begins one, too; or
none."""


@dataclass(frozen=True, init=False)
class Workflow:
    """A name, what begins it, and its steps."""

    name: str
    on: Sources
    subject_key: str
    debounce_s: float
    timeout_s: float
    overlap: Overlap
    dedupe: Dedupe
    revision: int
    """Of the definition that it was made of; 0: it is declared in code."""
    steps: dict[str, Step] = field(default_factory=dict)

    def __init__(
        self,
        name: str,
        *,
        on: On | None = None,
        subject_key: str = "",
        debounce_s: float = 0.0,
        timeout_s: float = 0.0,
        overlap: Overlap = "allow",
        dedupe: Dedupe = DEFAULT_DEDUPE,
        revision: int = 0,
    ) -> None:
        """Declare a workflow, still without steps.

        Args:
            name: stable; kept with every instance. 1 to 64 of A-Z a-z 0-9 _ -
            on: what begins it, as for an expectation. By default only people, programs and other
                workflows do.
            subject_key: path into the payload whose value is what an instance is about.
            debounce_s: how long a subject must be calm before an event begins it. Default: it
                begins at once.
            timeout_s: longest that an instance may take; then it is aborted. Default: any time.
            overlap: "skip" begins no second instance for a subject that one is busy with; "allow",
                the default, does.
            dedupe: which events are the same cause, as for an expectation.
            revision: of the definition that it is made of, for who makes workflows of those; leave
                it out otherwise.

        Raises:
            BadWorkflow: a value cannot work; the message names it.
        """
        check = WorkflowCheck(name)
        values = {
            "name": check.named("name", name),
            "on": check.sources(manual() if on is None else on),
            "subject_key": check.path("subject_key", subject_key),
            "debounce_s": check.seconds("debounce_s", debounce_s, most=WAIT_S_MAX),
            "timeout_s": check.seconds("timeout_s", timeout_s, most=WAIT_S_MAX),
            "overlap": check.choice("overlap", overlap, get_args(Overlap)),
            "dedupe": check.dedupe(dedupe),
            "revision": check.whole("revision", revision, least=0, most=REVISION_MAX),
            "steps": {},
        }
        for option, value in values.items():
            object.__setattr__(self, option, value)
        if debounce_s and not any(isinstance(source, EventSource) for source in self.on):
            raise check.refuse("debounce_s", "is for events, and none begins it; leave it out")

    def step(self, name: str, actor: str, expectation: str, **options: Unpack[StepOptions]) -> Step:
        """Declare a step that runs an expectation of an actor, and return it.

        Args:
            name: stable within the workflow; its result is known by it.
            actor: an actor's id.
            expectation: one of its expectations, whatever else fires that.
            options: see `StepOptions`.

        Raises:
            BadWorkflow: a value cannot work, or the steps depend on one another in a circle; the
                message names workflow, step and field.
        """
        return self._add(name, {"actor": actor, "expectation": expectation}, options)

    def sub(self, name: str, workflow: str, **options: Unpack[StepOptions]) -> Step:
        """Declare a step that runs another workflow, and return it.

        Its result is that of the other workflow's last steps, those that nothing depends on there,
        by name. Once that is done, nothing of it is undone but by `compensate`.

        Args:
            name: stable within this workflow.
            workflow: the other one's name. It finds the input as the payload of its trigger.
            options: see `StepOptions`.

        Raises:
            BadWorkflow: as for `step`.
        """
        return self._add(name, {"workflow": workflow}, options)

    def graph(self) -> Graph:
        """Return which step depends on which."""
        return {step.name: step.depends_on for step in self.steps.values()}

    def _add(self, name: str, runs: dict[str, str], options: StepOptions) -> Step:
        check = WorkflowCheck(self.name, name)
        check.name(name, taken=self.steps)
        if len(self.steps) >= STEPS_MAX:
            raise check.refuse("name", f"one step too many; the limit is {STEPS_MAX}")
        step = checked_step(check, runs, **options)
        if way := cycle({**self.graph(), name: step.depends_on}):
            raise check.refuse("depends_on", f"leads in a circle: {way}")
        self.steps[name] = step
        return step
