"""What is attacked, and how it has to end whatever happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.attack.app import AWAY_S, SHORT_S


@dataclass(frozen=True, kw_only=True)
class Story:
    """One thing that an event starts: an episode, or an instance of a workflow."""

    name: str
    """Of its expectation or workflow; the event is `attack.<name>`."""
    ends: str = "done"
    """Its status."""
    calls: Sequence[str]
    """Tags of the calls that are recorded as done, once each."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Tag → how it is settled."""
    approvals: int = 0
    """What people are asked."""
    sleeps: Sequence[float] = ()
    """In seconds."""
    findings: int = 1
    dead_letters: int = 0
    restarts: bool = False
    """Whether a crash has it begin anew: its calls may be recorded again."""


FUNCTIONS: Final = (
    Story(name="sequence", calls="abcd"),
    Story(name="branches", calls=("a1", "a2", "b1", "b2", "c1", "c2", "d")),
    Story(name="nested", calls=(*(f"{name}{n}" for name in "ab" for n in range(4)), "c")),
    Story(name="loop", calls=[f"{what}{n}" for n in range(3) for what in ("charged", "looked")]),
    Story(
        name="people",
        calls=("slept", "approved", "signaled", "flaked", "closed"),
        approvals=1,
        sleeps=(SHORT_S,),
    ),
    Story(name="flaky", calls="ac"),
    Story(name="nap", calls=("before", "after", "later"), sleeps=(AWAY_S, SHORT_S)),
)

OUTPUTS: Final = (
    Story(
        name="sent",
        calls="ab",
        outputs={"mailbox": "delivered", "unreliable": "delivered"},
    ),
    Story(
        name="delivered",
        ends="partially_failed",
        calls=(),
        outputs={
            "mailbox": "delivered",
            "warehouse": "delivered",
            "unreliable": "delivered",
            "refusing": "failed",
        },
        approvals=1,
        dead_letters=1,
    ),
)

CLASSES: Final = (
    Story(name="steps", calls="abcd", outputs={"unreliable": "delivered"}),
    Story(
        name="asking",
        calls="abc",
        outputs={"mailbox": "delivered", "unreliable": "delivered"},
        approvals=1,
    ),
    Story(name="restarted", calls="abc", outputs={"unreliable": "delivered"}, restarts=True),
    Story(name="limited", calls="abc"),
)

WORKFLOWS: Final = (
    Story(
        name="pipeline",
        calls=("stumbled", "approved", "item0", "item1"),
        approvals=1,
        findings=0,
    ),
    Story(
        name="saga",
        ends="failed",
        calls=("a", "b", "b-undone", "a-undone"),
        findings=0,
    ),
)

STORIES: Final = {each.name: each for each in (*FUNCTIONS, *OUTPUTS, *CLASSES, *WORKFLOWS)}
