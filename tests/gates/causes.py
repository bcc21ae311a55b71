"""The table, fourth part: which events are the same cause, and which of them are in a sample."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from engine.app.dedupe import by_event, by_payload, by_value
from tests.gates.scenario import BEGINS, Opened, Publish, Republish, Scenario

A: Final = {"host": "a"}
B: Final = {"host": "b"}

SAMPLES: Final = (  # Which events it is depends on the name of the actor, and so of the scenario.
    Scenario(
        name="every node chooses the same sample of the events, however often they come",
        declared={"sample": 0.5},
        nodes=("n1", "n2"),
        happens=[
            *((1.0 + n / 10, Publish(f"e{n}")) for n in range(6)),
            *((2.0 + n / 10, Republish(n)) for n in range(6)),
        ],
        until_s=4.0,
        opened=[Opened(1.0 + n / 10, f"e{n}") for n in (0, 2, 3)],
        counted={"fire": 3, "duplicate": 3, "sampled_out": 6},
    ),
)

IDENTITY: Final = (
    Scenario(
        name="an event is the same as itself",
        declared={"dedupe": by_event()},
        happens=[(1.0, Publish("e1", A)), (1.2, Republish(0)), (1.4, Publish("e2", A))],
        until_s=2.5,
        opened=[Opened(1.0, "e1"), Opened(1.4, "e2")],
        counted={"fire": 2, "duplicate": 1},
        is_short=True,
    ),
    Scenario(
        name="events that say the same are the same, in any order of keys",
        declared={"dedupe": by_payload()},
        happens=[
            (1.0, Publish("e1", {"x": 1, "y": 2})),
            (1.2, Publish("e2", {"x": 1, "y": 3})),
            (1.4, Publish("e3", {"x": 1, "y": 2})),
        ],
        until_s=2.5,
        opened=[Opened(1.0, "e1"), Opened(1.2, "e2")],
        counted={"fire": 2, "duplicate": 1},
        is_short=True,
    ),
    Scenario(
        name="events with one value are the same within a minute by the clock",
        declared={"dedupe": by_value("host", window="m1")},
        begins=BEGINS + timedelta(seconds=50),
        nodes=("n1", "n2"),
        happens=[
            (1.0, Publish("a1", A)),
            (2.0, Publish("b1", B)),
            (3.0, Publish("a2", A)),
            (9.9, Publish("a3", A)),
            (10.0, Publish("a4", A)),
            (69.9, Publish("a5", A)),
        ],
        until_s=71.0,
        opened=[Opened(1.0, "a1"), Opened(2.0, "b1"), Opened(10.0, "a4")],
        counted={"fire": 3, "duplicate": 3},
    ),
    Scenario(
        name="a function of the user says what is the same, and one that fails costs its event",
        declared={"dedupe": lambda happened: happened.payload["host"][0]},
        happens=[
            (1.0, Publish("e1", {"host": "web-1"})),
            (1.2, Publish("e2", {"host": "web-2"})),
            (1.4, Publish("e3", {})),
            (1.6, Publish("e4", {"host": "db-1"})),
        ],
        until_s=2.5,
        opened=[Opened(1.0, "e1", {"dedupe_key": "own:w"}), Opened(1.6, "e4")],
        counted={"fire": 2, "duplicate": 1, "dedupe_failed": 1},
        letters=["dedupe_failed"],
        is_short=True,
    ),
)

CAUSES: Final = (*SAMPLES, *IDENTITY)
