"""The table, third part: what holds events back, and in which order it is asked."""

from __future__ import annotations

from typing import Final

from engine.app.checks import Breaker
from engine.app.conditions import gt
from engine.app.triggers import event, every
from tests.gates.scenario import (
    DOOR,
    Ask,
    Kill,
    Opened,
    Publish,
    Republish,
    Scenario,
    Start,
)

OF_HOST: Final = {"subject_key": "host"}
A: Final = {"host": "a"}
B: Final = {"host": "b"}
FAILS: Final = {"fails": True}

NEVER: Final = 1e-9
"""A share in which none of the events here lies."""

COOLDOWN: Final = (
    Scenario(
        name="after a subject has fired it rests, and others do not",
        declared={**OF_HOST, "cooldown_s": 2},
        nodes=("n1", "n2"),
        happens=[
            (1.0, Publish("a1", A)),
            (1.9, Publish("a2", A)),
            (2.0, Publish("b1", B)),
            (4.2, Publish("a3", A)),
            (4.3, Publish("none", {})),
            (4.4, Publish("none again", {})),
        ],
        until_s=5.0,
        opened=[
            Opened(1.0, "a1"),
            Opened(2.0, "b1"),
            Opened(4.2, "a3"),
            Opened(4.3, "none"),
        ],
        counted={"fire": 4, "cooldown": 2},
        is_short=True,
    ),
    Scenario(
        name="a subject goes on resting when all nodes have died",
        declared={"cooldown_s": 30},
        happens=[
            (1.0, Publish("e1")),
            (2.0, Kill("n1")),
            (3.0, Publish("e2")),
            (20.0, Start("n1")),
            (30.0, Publish("e3")),
            (32.0, Publish("e4")),
        ],
        until_s=33.0,
        opened=[Opened(1.0, "e1"), Opened(32.0, "e4")],
        counted={"fire": 2, "cooldown": 2},
    ),
    Scenario(
        name="an event that comes twice at one moment passes the cooldown that it began itself",
        declared={"cooldown_s": 30},
        nodes=("n1", "n2"),
        happens=[(1.0, Publish("e1")), (1.0, Republish(0)), (40.0, Publish("e2"))],
        until_s=41.0,
        opened=[Opened(1.0, "e1"), Opened(40.0, "e2")],
        counted={"fire": 2, "duplicate": 1},
    ),
    Scenario(
        name="what a person fires begins the rest anew",
        declared={"cooldown_s": 3},
        happens=[
            (1.0, Publish("e1")),
            (3.0, Ask("k1")),
            (4.8, Publish("e2")),
            (6.8, Publish("e3")),
        ],
        until_s=8.0,
        opened=[Opened(1.0, "e1"), Opened(3.0, "fire k1"), Opened(6.8, "e3")],
        counted={"fire": 3, "cooldown": 1},
        is_short=True,
    ),
)

CALM: Final = (
    Scenario(
        name="of a burst the newest event fires, once its subject is calm",
        declared={**OF_HOST, "debounce_s": 2},
        nodes=("n1", "n2"),
        happens=[
            (1.0, Publish("a1", A)),
            (2.0, Publish("a2", A)),
            (2.5, Publish("b1", B)),
            (3.0, Publish("a3", {**A, "n": 3})),
            (6.0, Publish("a4", A)),
        ],
        until_s=9.0,
        opened=[
            Opened(4.5, "b1", {"coalesced": 0}),
            Opened(5.0, "a3", {"coalesced": 2, "payload": {**A, "n": 3}, "entity_id": "a"}),
            Opened(8.0, "a4", {"coalesced": 0}),
        ],
        counted={"waits_for_calm": 5, "fire": 3},
        is_short=True,
    ),
    Scenario(
        name="a subject that is never calm fires when the longest wait is over",
        declared={"debounce_s": 2, "max_wait_s": 4},
        happens=[(at_s, Publish(f"e{at_s:g}")) for at_s in (1.0, 2.2, 3.4, 4.4, 5.8, 7.0, 8.2)],
        until_s=11.0,
        opened=[
            Opened(5.0, "e4.4", {"coalesced": 3}),
            Opened(9.8, "e8.2", {"coalesced": 2}),
        ],
        counted={"waits_for_calm": 7, "fire": 2},
        is_short=True,
    ),
    Scenario(
        name="calm is waited for by the server, not by a node",
        declared={"debounce_s": 5},
        happens=[
            (1.0, Publish("e1")),
            (2.0, Publish("e2")),
            (3.0, Kill("n1")),
            (30.0, Start("n2")),
        ],
        until_s=32.0,
        opened=[Opened(30.0, "e2", {"coalesced": 1, "opened_by": "n2"})],
        counted={"waits_for_calm": 2, "fire": 1},
    ),
    Scenario(
        name="an event that comes again while its subject is not calm counts once",
        declared={"debounce_s": 2},
        happens=[(1.0, Publish("e1")), (1.5, Publish("e2")), (2.0, Republish(1))],
        until_s=5.0,
        opened=[Opened(4.0, "e2", {"coalesced": 2})],
        counted={"waits_for_calm": 3, "fire": 1},
    ),
)

BREAKER: Final = (
    Scenario(
        name="a breaker opens, lets a probe through, opens again, and closes",
        declared={"breaker": Breaker(threshold=2, half_open_after_s=2)},
        nodes=("n1", "n2"),
        happens=[
            (1.0, Publish("e1", FAILS)),
            (1.6, Publish("e2", FAILS)),
            (2.2, Publish("shut", {})),
            (4.2, Publish("probe", FAILS)),
            (4.8, Publish("shut again", {})),
            (5.0, Ask("by hand")),
            (7.0, Publish("second probe", {})),
            (7.8, Publish("e3", FAILS)),
            (8.4, Publish("e4", {})),
        ],
        until_s=9.4,
        opened=[
            Opened(1.0, "e1"),
            Opened(1.6, "e2"),
            Opened(4.2, "probe"),
            Opened(5.0, "fire by hand"),
            Opened(7.0, "second probe"),
            Opened(7.8, "e3"),
            Opened(8.4, "e4"),
        ],
        counted={"fire": 7, "breaker_open": 2},
        is_short=True,
    ),
    Scenario(
        name="a success between failures keeps the breaker closed",
        declared={"breaker": Breaker(threshold=2)},
        happens=[
            (1.0, Publish("e1", FAILS)),
            (2.0, Publish("e2")),
            (3.0, Publish("e3", FAILS)),
            (4.0, Publish("e4")),
        ],
        until_s=5.0,
        opened=[Opened(1.0, "e1"), Opened(2.0, "e2"), Opened(3.0, "e3"), Opened(4.0, "e4")],
        counted={"fire": 4},
    ),
    Scenario(
        name="a breaker stays open when all nodes have died, and holds ticks back",
        declared={
            "on": [event(DOOR), every("10s")],
            "breaker": Breaker(threshold=1, half_open_after_s=20),
        },
        happens=[
            (1.0, Publish("e1", FAILS)),
            (3.0, Kill("n1")),
            (4.0, Start("n2")),
            (5.0, Publish("e2")),
        ],
        until_s=45.0,
        opened=[Opened(1.0, "e1"), Opened(30.0, "tick+30"), Opened(40.0, "tick+40")],
        counted={"fire": 3, "breaker_open": 3},
    ),
)

ORDER: Final = (
    Scenario(
        name="name, hops and filter are asked before the cooldown",
        declared={"on": event(DOOR, filter={"floor": gt(2)}), "cooldown_s": 30},
        happens=[
            (1.0, Publish("e1", {"floor": 3})),
            (2.0, Publish("e2", {"floor": 3}, hops=17)),
            (3.0, Publish("e3", {"floor": 1})),
            (4.0, Publish("e4", {}, hops=17)),
            (5.0, Publish("e5", {"floor": 3})),
        ],
        until_s=6.0,
        opened=[Opened(1.0, "e1")],
        counted={"fire": 1, "too_many_hops": 2, "filter": 1, "cooldown": 1},
    ),
    Scenario(
        name="the cooldown is asked before calm, and again when there is calm",
        declared={"cooldown_s": 10, "debounce_s": 2},
        happens=[
            (1.0, Publish("e1")),
            (4.0, Publish("e2")),
            (14.0, Publish("e3")),
            (15.0, Ask("k1")),
        ],
        until_s=18.0,
        opened=[Opened(3.0, "e1"), Opened(15.0, "fire k1")],
        counted={"waits_for_calm": 2, "fire": 2, "cooldown": 2},
    ),
    Scenario(
        name="calm is waited for before the breaker is asked",
        declared={"debounce_s": 2, "breaker": Breaker(threshold=1, half_open_after_s=6)},
        happens=[
            (1.0, Publish("e1", FAILS)),
            (4.0, Publish("e2")),
            (8.0, Publish("e3")),
        ],
        until_s=11.0,
        opened=[Opened(3.0, "e1"), Opened(10.0, "e3")],
        counted={"waits_for_calm": 3, "fire": 2, "breaker_open": 1},
    ),
    Scenario(
        name="the cooldown is asked before the breaker",
        declared={"cooldown_s": 10, "breaker": Breaker(threshold=1, half_open_after_s=60)},
        happens=[
            (1.0, Publish("e1", FAILS)),
            (5.0, Publish("e2")),
            (12.0, Publish("e3")),
        ],
        until_s=13.0,
        opened=[Opened(1.0, "e1")],
        counted={"fire": 1, "cooldown": 1, "breaker_open": 1},
    ),
    Scenario(
        name="what is not in the sample is not, whatever else would let it pass",
        declared={"sample": NEVER, "cooldown_s": 10, "breaker": Breaker(threshold=1)},
        happens=[
            (1.0, Publish("e1")),
            (2.0, Ask("k1", FAILS)),
            (3.0, Publish("e2")),
            (13.0, Publish("e3")),
        ],
        until_s=14.0,
        opened=[Opened(2.0, "fire k1")],
        counted={"fire": 1, "sampled_out": 2, "cooldown": 1},
    ),
)

GATES: Final = (*COOLDOWN, *CALM, *BREAKER, *ORDER)
