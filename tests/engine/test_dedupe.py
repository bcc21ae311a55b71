"""Identity from causes."""

from __future__ import annotations

from uuid import RFC_4122, UUID

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from engine.dedupe import episode_id, event_key
from streams.world import DomainEvent
from tests.spec import EPOCH

CAUSE = {"stack": "vigil", "actor": "monitor", "expectation": "limits", "dedupe_key": "event:x1"}


@pytest.mark.parametrize(
    ("cause", "id_"),
    [
        (CAUSE, "f0d1e0b4-0d4a-870d-abee-e50ae7d1c755"),
        ({**CAUSE, "generation": 1}, "6814fc11-29fa-8c69-8583-8949fb0267cb"),
        ({**CAUSE, "dedupe_key": "event:ä/…"}, "8909291a-5152-855d-9200-35965b8fa3e1"),
    ],
)
def test_the_same_cause_gives_the_same_id_for_ever(cause, id_):
    assert episode_id(**cause) == id_


@forall(st.text(), st.integers(min_value=0, max_value=2**31))
def test_an_id_is_a_uuid_of_version_8_and_the_rfc_9562_variant(key, generation):
    id_ = UUID(episode_id(**{**CAUSE, "dedupe_key": key.encode(errors="replace").decode()},
                          generation=generation))  # fmt: skip
    assert (id_.version, id_.variant) == (8, RFC_4122)


@pytest.mark.parametrize("part", [*CAUSE, "generation"])
def test_any_other_part_gives_another_id(part):
    other = 1 if part == "generation" else CAUSE[part] + "x"
    assert episode_id(**{**CAUSE, part: other}) != episode_id(**CAUSE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"stack": "ab", "actor": "c"}, {"stack": "a", "actor": "bc"}),
        ({"actor": "ab", "expectation": "c"}, {"actor": "a", "expectation": "bc"}),
        ({"actor": "a,b", "expectation": "c"}, {"actor": "a", "expectation": "b,c"}),
        ({"expectation": "ab", "dedupe_key": "c"}, {"expectation": "a", "dedupe_key": "bc"}),
        ({"expectation": 'a","b', "dedupe_key": "c"}, {"expectation": "a", "dedupe_key": 'b","c'}),
        ({"dedupe_key": "k1", "generation": 1}, {"dedupe_key": "k", "generation": 11}),
    ],
)
def test_a_shifted_boundary_gives_another_id(one, other):
    assert episode_id(**{**CAUSE, **one}) != episode_id(**{**CAUSE, **other})


def test_an_events_key_is_its_identity_and_nothing_else():
    one = DomainEvent(id="x1", name="a.b", payload={}, seq=1, at=EPOCH)
    again = DomainEvent(id="x1", name="a.b", payload={"n": 1}, seq=9, at=EPOCH)
    assert event_key(one) == event_key(again) == "event:x1"
