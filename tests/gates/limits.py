"""The table, fifth part: how many episodes run at a time, in what order, and which never do."""

from __future__ import annotations

from typing import Final

from engine.app.checks import Breaker
from tests.gates.scenario import NEVER, Ask, Opened, Publish, Scenario, Start, Stop

ONE: Final = {"max_concurrent_cluster": 1}
A: Final = {"host": "a", "takes_s": 1}
B: Final = {"host": "b", "takes_s": 1}
FAILS: Final = {"fails": True}
LONG: Final = {"takes_s": 2}

TURNS: Final = (
    Scenario(
        name="no more run at a time than may, on however many nodes",
        limits={"max_concurrent_cluster": 2},
        nodes=("n1", "n2"),
        happens=[(1.0 + n / 10, Publish(f"e{n}", LONG)) for n in range(4)],
        until_s=7.0,
        opened=[
            Opened(1.0, "e0", begins_s=1.0, ends="done"),
            Opened(1.1, "e1", begins_s=1.1, ends="done"),
            Opened(1.2, "e2", begins_s=3.0, ends="done"),
            Opened(1.3, "e3", begins_s=3.1, ends="done"),
        ],
        counted={"fire": 4},
        is_short=True,
    ),
    Scenario(
        name="those with one key take turns in order, and others overtake them",
        declared={"concurrency_key": "host"},
        nodes=("n1", "n2"),
        happens=[
            (1.0, Publish("a1", A)),
            (1.1, Publish("a2", A)),
            (1.2, Publish("a3", A)),
            (1.5, Publish("b1", B)),
        ],
        until_s=5.5,
        opened=[
            Opened(1.0, "a1", begins_s=1.0),
            Opened(1.1, "a2", begins_s=2.0),
            Opened(1.2, "a3", begins_s=3.0),
            Opened(1.5, "b1", begins_s=1.5),
        ],
        counted={"fire": 4},
        is_short=True,
    ),
    Scenario(
        name="of those that wait the highest priority goes first",
        limits=ONE,
        happens=[
            (1.0, Publish("e1", LONG)),
            (1.2, Publish("e2", A)),
            (1.5, Ask("low", A, priority=-1)),
            (2.0, Ask("high", A, priority=5)),
        ],
        until_s=7.5,
        opened=[
            Opened(1.0, "e1", begins_s=1.0),
            Opened(1.2, "e2", begins_s=4.0),
            Opened(1.5, "fire low", begins_s=5.0),
            Opened(2.0, "fire high", begins_s=3.0),
        ],
        counted={"fire": 4},
        is_short=True,
    ),
)

OVERFLOW: Final = (
    Scenario(
        name="what finds the queue full stays in its stream until there is room in it",
        limits={**ONE, "queue_max": 1},
        happens=[
            (1.0, Publish("e1", LONG)),
            (1.4, Publish("e2", LONG)),
            (1.8, Publish("e3", LONG)),
        ],
        until_s=8.0,
        opened=[
            Opened(1.0, "e1", begins_s=1.0),
            Opened(1.4, "e2", begins_s=3.0),
            Opened(3.0, "e3", begins_s=5.0),
        ],
        counted={"fire": 3},
        is_short=True,
    ),
    Scenario(
        name="what finds no room is dropped, if that is wanted",
        limits={**ONE, "overflow": "drop"},
        happens=[
            (1.0, Publish("e1", LONG)),
            (2.0, Publish("e2", LONG)),
            (4.0, Publish("e3")),
        ],
        until_s=5.0,
        opened=[Opened(1.0, "e1", begins_s=1.0), Opened(4.0, "e3", begins_s=4.0)],
        counted={"fire": 2, "overflow": 1},
        is_short=True,
    ),
    Scenario(
        name="what has waited longest is shed for what comes, if that is wanted",
        limits={**ONE, "overflow": "shed_oldest", "queue_max": 1},
        happens=[
            (1.0, Publish("e1", LONG)),
            (1.5, Publish("e2")),
            (2.0, Publish("e3")),
        ],
        until_s=4.5,
        opened=[
            Opened(1.0, "e1", begins_s=1.0, ends="done"),
            Opened(1.5, "e2", begins_s=NEVER, ends="shed_oldest"),
            Opened(2.0, "e3", begins_s=3.0, ends="done"),
        ],
        counted={"fire": 3, "overflow": 1},
        is_short=True,
    ),
    Scenario(
        name="what has not begun in time expires",
        declared={"start_within_s": 1},
        limits=ONE,
        happens=[
            (1.0, Publish("e1", LONG)),
            (1.5, Publish("e2")),
            (2.5, Publish("e3")),
        ],
        until_s=5.0,
        opened=[
            Opened(1.0, "e1", begins_s=1.0, ends="done"),
            Opened(1.5, "e2", begins_s=NEVER, ends="expired"),
            Opened(2.5, "e3", begins_s=3.0, ends="done"),
        ],
        counted={"fire": 3},
        is_short=True,
    ),
)

BREAKERS: Final = (
    Scenario(
        name="a breaker that opens cancels what runs, if that is wanted",
        declared={"breaker": Breaker(threshold=1, cancel_in_flight=True)},
        nodes=("n1", "n2"),
        happens=[
            (1.0, Publish("e1", {"takes_s": 60})),
            (1.2, Ask("by hand", LONG)),
            (2.0, Publish("e2", FAILS)),
        ],
        until_s=4.5,
        opened=[
            Opened(1.0, "e1", ends="circuit_breaker_tripped"),
            Opened(1.2, "fire by hand", ends="done"),
            Opened(2.0, "e2"),
        ],
        counted={"fire": 3},
        is_short=True,
    ),
    Scenario(
        name="a breaker of one node is not another one's",
        declared={"breaker": Breaker(threshold=1, scope="node")},
        happens=[
            (1.0, Publish("e1", FAILS)),
            (2.0, Publish("e2")),
            (3.0, Stop("n1")),
            (3.0, Start("n2")),
            (5.0, Publish("e3")),
        ],
        until_s=6.0,
        opened=[Opened(1.0, "e1"), Opened(5.0, "e3", {"opened_by": "n2"})],
        counted={"fire": 2, "breaker_open": 1},
        is_short=True,
    ),
    Scenario(
        name="what a person fires is not asked by an open breaker, and does not close it",
        declared={"breaker": Breaker(threshold=1)},
        happens=[
            (1.0, Publish("e1", FAILS)),
            (2.0, Publish("e2")),
            (3.0, Ask("k1")),
            (4.0, Publish("e3")),
        ],
        until_s=5.0,
        opened=[Opened(1.0, "e1"), Opened(3.0, "fire k1", ends="done")],
        counted={"fire": 2, "breaker_open": 2},
        is_short=True,
    ),
)

LIMITS: Final = (*TURNS, *OVERFLOW, *BREAKERS)
