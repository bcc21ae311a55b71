"""How nodes differ in what they declare of one actor, and who is told of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from engine.app.actor import Actor
from engine.app.triggers import event
from engine.cluster import members
from engine.cluster.differences import NAMED_MAX, REMEDY, differences, differences_from
from engine.cluster.members import DeclarationWatch
from engine.cluster.modes import Switch
from engine.cluster.nodes import ActorInfo, actor_info, encoded
from streams.keys import node_key
from streams.ports.bucket import BucketEntry
from tests.engine.cluster.test_nodes import BOTH, Watch, node
from tests.engine.stage import Scripted, app_of, eventually, running

ENDING = ": expected during a deploy; otherwise each event goes to either"


def declared(may=BOTH, *, on="host.seen", more=(), limits=None, **options) -> ActorInfo:
    actor = Actor("watcher", **(limits or {}))
    actor.expect("look", Watch(), on=event(on), **options)
    for name in more:
        actor.expect(name, Watch(), on=event(on))
    return actor_info(actor, may)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"on": "host.lost"}, "expectation look: on event host.seen and event host.lost"),
        ({"cooldown_s": 30}, "expectation look: cooldown_s 60 and 30"),
        ({"cooldown_s": 0}, "expectation look: cooldown_s 60 and unset"),
        ({"more": ["other"]}, "expectation other: only on the second"),
        ({"limits": {"max_concurrent_cluster": 2}}, "max_concurrent_cluster unset and 2"),
    ],
)
def test_each_kind_of_difference_is_named(other, what):
    nodes = [
        node("n1", watcher=declared(cooldown_s=60)),
        node("n2", watcher=declared(**{"cooldown_s": 60, **other})),
    ]
    (found,) = differences(nodes)
    begins = f"actor 'watcher' is declared differently by node n1 and node n2 ({what}"
    assert found.says.startswith(begins)
    assert found.says.endswith(f"){ENDING}")


def test_what_only_the_first_has_is_named_too():
    (found,) = differences([node("n1", a=declared(more=["b"])), node("n2", a=declared())])
    assert found.what == ("expectation b: only on the first",)


def test_of_many_differences_the_first_are_named():
    names = [f"e{number}" for number in range(NAMED_MAX + 2)]
    (found,) = differences([node("n1", a=declared(more=names)), node("n2", a=declared())])
    assert "e2: only on the first; 2 more): expected" in found.says


def test_nodes_that_differ_alike_are_told_of_once():
    new = declared(cooldown_s=30)
    nodes = [node("n1", a=declared()), *(node(f"n{number}", a=new) for number in range(2, 9))]
    assert [(each.one, each.other) for each in differences(nodes)] == [("n1", "n2")]
    found = differences_from(nodes[0], nodes[1:])
    assert [(each.one, each.other) for (each,) in found] == [("n1", "n2")] * 7


@pytest.mark.parametrize(
    "other",
    [
        declared(cooldown_s=60),
        replace(declared(cooldown_s=60), slots=77),
        declared(Switch(wakes=False, runs=False)),
        replace(declared(), revision=2),
        replace(declared(), expectations={}),
    ],
    ids=["the same", "another number of slots", "idle", "from a definition", "too long to tell"],
)
def test_what_is_no_difference_is_not_told(other):
    nodes = [node("n1", a=declared(cooldown_s=60)), node("n2", a=other), node("n3", b=declared())]
    assert differences(nodes) == []
    assert differences(nodes, only="nobody") == []


def test_a_workflow_is_called_so():
    ours, theirs = (replace(each, workflow="review") for each in (declared(), declared(on="x")))
    nodes = [node("n1", **{"workflow-review": ours}), node("n2", **{"workflow-review": theirs})]
    assert [each.actor for each in differences(nodes)] == ["workflow 'review'"]


async def test_both_nodes_warn_once_of_what_differs(ports):
    one, other = app_of(Scripted(), cooldown_s=60), app_of(Scripted(), cooldown_s=30)
    with capture_logs() as lines:
        async with (
            running(one, ports, "n1"),
            running(other, ports, "n2"),
            running(one, ports, "n3"),
        ):
            await eventually(lambda: len(told(lines)) == 3)
    assert {line["event"].split(": expected")[0] for line in told(lines)} == {
        f"actor 'worker' is declared differently by node {pair})"
        for pair in (
            "n1 and node n2 (expectation thing: cooldown_s 60 and 30",
            "n2 and node n1 (expectation thing: cooldown_s 30 and 60",
            "n3 and node n2 (expectation thing: cooldown_s 60 and 30",
        )
    }
    assert {line["do"] for line in told(lines)} == {REMEDY}


def test_a_difference_is_told_once_until_it_is_gone():
    watch, own = DeclarationWatch("n1"), node("n1", a=declared())
    new, newer = declared(cooldown_s=30), replace(declared(cooldown_s=30), slots=9)
    with capture_logs() as lines:
        watch.hear([said("n2", node("n2", a=new))])
        assert told(lines) == [], "it does not know yet what it says itself"
        watch.hear([said("n1", own)])
        watch.hear([said("n1", own), said("n2", node("n2", a=new))])
        watch.hear([said("n3", node("n3", a=new)), said("n2", node("n2", a=newer))])
        assert len(told(lines)) == 1
        watch.hear([said("n2", None), said("n3", None)])
        watch.hear([said("n2", node("n2", a=new))])
        assert len(told(lines)) == 2


def test_a_difference_stands_for_as_long_as_one_node_has_it():
    watch, new = DeclarationWatch("n1"), declared(cooldown_s=30)
    with capture_logs() as lines:
        watch.hear([said("n1", node("n1", a=declared())), said("n2", node("n2", a=new))])
        watch.hear([said("n2", None), said("n3", node("n3", a=new))])
        watch.hear([said("n4", node("n4", a=new))])
    assert len(told(lines)) == 1


def test_what_one_node_says_anew_is_compared_alone_unless_it_is_this_one(monkeypatch):
    compared = []

    def noting(one, others):
        compared.append([each.name for each in others])
        return differences_from(one, others)

    monkeypatch.setattr(members, "differences_from", noting)
    watch = DeclarationWatch("n1")
    watch.hear([said(each, node(each, a=declared())) for each in ("n1", "n2", "n3")])
    watch.hear([said("n2", node("n2", a=declared(cooldown_s=30)))])
    watch.hear([said("n1", node("n1", a=declared(cooldown_s=30)))])
    assert compared == [["n2", "n3"], ["n2"], ["n2", "n3"]]


def test_of_two_things_that_a_node_says_at_once_the_later_counts():
    watch, own = DeclarationWatch("n1"), said("n1", node("n1", a=declared()))
    one, other = (said("n2", node("n2", a=declared(cooldown_s=each))) for each in (30, 60))
    with capture_logs() as lines:
        watch.hear([own, one])
        watch.hear([other, one])
    assert len(told(lines)) == 1


def test_an_entry_that_cannot_be_read_is_no_difference():
    watch = DeclarationWatch("n1")
    with capture_logs() as lines:
        watch.hear([said("n1", node("n1", a=declared()))])
        watch.hear([BucketEntry(key=node_key("n2"), value=b"nonsense", revision=1)])
    assert told(lines) == []


def said(name, info):
    return BucketEntry(
        key=node_key(name), value=None if info is None else encoded(info), revision=1
    )


def told(lines):
    return [line for line in lines if "is declared differently" in line["event"]]
