"""The table, first part: events, feeds, and people."""

from __future__ import annotations

from typing import Final

from engine.app.conditions import gt
from engine.app.triggers import event, manual
from streams.model.triggers import Mode
from tests.gates.scenario import DOOR, Ask, Offer, Opened, Publish, Republish, Scenario, Start, Stop

HIGH: Final = event(DOOR, "door.closed", filter={"floor": gt(2)})

TRIGGERS: Final = (
    Scenario(
        name="an event with one of several names that fits the filter fires",
        declared={"on": [HIGH, event("fire.alarm")]},
        happens=[
            (1.0, Publish("up", {"floor": 3})),
            (1.1, Publish("down", {"floor": 2})),
            (1.2, Publish("up again", {"floor": 4}, name="door.closed")),
            (1.3, Publish("somewhere", {})),
            (1.4, Publish("spelled", {"floor": "3"})),
            (1.5, Publish("alarm", {}, name="fire.alarm")),
            (1.6, Publish("far", {"floor": 3}, hops=16)),
            (1.7, Publish("too far", {"floor": 3}, hops=17)),
            (1.8, Publish("unwatched", {"floor": 3}, name="door.painted")),
        ],
        until_s=2.5,
        opened=[
            Opened(1.0, "up", {"event_type": DOOR, "payload": {"floor": 3}, "hops": 0}),
            Opened(1.2, "up again", {"event_type": "door.closed"}),
            Opened(1.5, "alarm"),
            Opened(1.6, "far", {"hops": 16}),
        ],
        counted={
            "fire": 4,
            "filter": 1,
            "filter_key_missing": 1,
            "filter_type": 1,
            "too_many_hops": 1,
        },
        is_short=True,
    ),
    Scenario(
        name="an event that happens while no node runs fires when one does",
        happens=[(1.0, Stop("n1")), (2.0, Publish("e1")), (3.0, Start("n2"))],
        until_s=4.5,
        opened=[Opened(3.0, "e1", {"opened_by": "n2"})],
        counted={"fire": 1},
        is_short=True,
    ),
    Scenario(
        name="two nodes that see an event twice open one episode",
        nodes=("n1", "n2"),
        happens=[(1.0, Publish("e1")), (1.5, Republish(0)), (2.0, Republish(0))],
        until_s=3.0,
        opened=[Opened(1.0, "e1")],
        counted={"fire": 1, "duplicate": 2},
    ),
    Scenario(
        name="a person fires now, later, and twice with one key",
        declared={"on": manual(), "subject_key": "host"},
        happens=[
            (1.0, Ask("now", {"host": "web-1"})),
            (1.1, Ask("now", {"host": "web-2"})),
            (1.2, Ask("later", due_s=3.0)),
            (1.3, Ask("later", {"host": "web-3"}, due_s=2.5)),
            (1.4, Ask("past", due_s=0.5)),
            (2.0, Ask("now", due_s=2.2)),
            (2.2, Ask("now", dry_run=True)),
        ],
        until_s=4.0,
        opened=[
            Opened(1.0, "fire now", {"entity_id": "web-1", "requested_by": "tests"}),
            Opened(1.4, "fire past"),
            Opened(2.2, "fire now, dry", {"mode": Mode.DRY_RUN}),
            Opened(2.5, "fire later", {"payload": {"host": "web-3"}}),
        ],
        counted={"fire": 4, "duplicate": 1},
        is_short=True,
    ),
    Scenario(
        name="a fire by hand waits for a node, and passes filter and cooldown",
        declared={"on": HIGH, "cooldown_s": 60},
        nodes=(),
        happens=[
            (0.5, Ask("k1", {"floor": 1})),
            (1.0, Start("n1")),
            (2.0, Publish("e1", {"floor": 3})),
            (3.0, Ask("k2")),
        ],
        until_s=4.0,
        opened=[Opened(1.0, "fire k1"), Opened(3.0, "fire k2")],
        counted={"fire": 2, "cooldown": 1},
    ),
    Scenario(
        name="another stream is read from its beginning",
        declared={"on": event(stream="ALL", subject="ALL.*.placed", start="all")},
        stream="ALL",
        before=[Offer("1.placed", {"n": 1}), Offer("1.paid"), Offer("2.placed", {"n": 2})],
        happens=[(1.5, Offer("3.placed")), (1.6, Offer("placed")), (1.7, Publish("e1"))],
        until_s=2.5,
        opened=[
            Opened(0.0, "1.placed", {"payload": {"n": 1}, "stream": "ALL", "event_id": "ALL:1"}),
            Opened(0.0, "2.placed", {"payload": {"n": 2}}),
            Opened(1.5, "3.placed", {"event_type": "ALL.3.placed"}),
        ],
        counted={"fire": 3},
        is_short=True,
    ),
    Scenario(
        name="another stream is read from now on, and what came while no node ran, too",
        declared={"on": event(stream="NEW", filter={"n": gt(1)})},
        stream="NEW",
        before=[Offer("old", {"n": 5})],
        happens=[
            (1.0, Offer("one", {"n": 1})),
            (1.1, Offer("two", {"n": 2})),
            (1.5, Stop("n1")),
            (2.0, Offer("three", {"n": 3})),
            (2.5, Start("n1")),
        ],
        until_s=4.0,
        opened=[Opened(1.1, "two"), Opened(2.5, "three")],
        counted={"fire": 2, "filter": 1},
        is_short=True,
    ),
)
