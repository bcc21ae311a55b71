"""Old states, made new."""

from __future__ import annotations

import pytest

from engine.app.context import StateSchema, migrate
from engine.errors import Unencodable
from streams.json import raw


def add_region(state):
    return {**state, "region": "eu"}


def rename_host(state):
    return {"node": state["host"], "region": state["region"]}


THREE = StateSchema(version=3, migrations={1: add_region, 2: rename_host})


def test_a_state_is_led_from_its_version_to_the_current_one():
    assert migrate(raw({"host": "h"}), THREE, version=1) == raw({"node": "h", "region": "eu"})
    state = raw({"host": "h", "region": "us"})
    assert migrate(state, THREE, version=2) == raw({"node": "h", "region": "us"})


def test_a_current_state_stays_as_it_is():
    assert migrate(raw({"any": "thing"}), THREE, version=3) == raw({"any": "thing"})


def test_a_migration_that_returns_what_json_cannot_say_is_told():
    schema = StateSchema(version=2, migrations={1: lambda state: {"set": object()}})
    with pytest.raises(Unencodable, match="migrated from version 1"):
        migrate(raw({}), schema, version=1)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (StateSchema(version=0), "count from 1"),
        (StateSchema(version=3, migrations={1: add_region}), "no migration from version 2 to 3"),
        (StateSchema(version=1, migrations={1: add_region}), "lead past version 1"),
        (THREE, None),
        (StateSchema(), None),
    ],
)
def test_a_schema_must_lead_from_every_version_to_the_current_one(schema, said):
    problem = schema.problem()
    assert problem is None if said is None else said in problem
