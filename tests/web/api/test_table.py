"""The operations as a whole: what they stand for, and the document that tells of them."""

from __future__ import annotations

import inspect
import re
from collections import Counter

import msgspec
import typer
from jsonschema import Draft202012Validator

from streams.clock import SystemClock
from streams.memory import memory_ports
from streams.subjects import Stack
from tests.client.synced import CLIENT, calls, groups, read
from tests.tidy.test_tidy import ROOT
from vigil.client import Client
from vigil.commands import whole
from vigil.web.api.openapi import document
from vigil.web.api.problems import KINDS
from vigil.web.api.table import NOT_REMOTE, OPERATIONS

DOCUMENT = document()

NOT_CALLED = {
    "episodes.count_newest": "for what pages show; `episodes.count` counts all",
    "episodes.find": "an id may be short wherever one is given",
    "episodes.latest": "`episodes.list` with a limit of 1",
    "episodes.describe": "rows, for what commands print",
    "episodes.describe_end": "rows, for what commands print",
    "episodes.tail": "the log is read again, or events are followed",
    "episodes.histories": "not redacted: for who has the servers at hand",
    "episodes.read": "`episodes.get`",
    "episodes.cancel_each": "`episodes.cancel`",
    "episodes.wait_each": "`episodes.wait`",
    "events.would": "it takes code of an app",
    "findings.describe": "rows, for what commands print",
    "outputs.describe": "rows, for what commands print",
    "dead_letters.find": "a key may be short wherever one is given",
    "dead_letters.describe": "rows, for what commands print",
    "actors.drain": "`actors.get` is asked again",
    "nodes.wait_ready": "`nodes.list` is asked again",
    "definitions.wait_rollout": "`actors.get` has the revision of each node",
    "definitions.wait_withdrawal": "`actors.get` has the nodes",
    "definitions.get": "`definitions.read` and `definitions.list`",
    "definitions.text": "`definitions.read`",
    "workflows.find": "an id may be short wherever one is given",
    "workflows.read": "`workflows.get`",
    "workflows.wait": "`workflows.get` is asked again",
    "repairs.find_losses": "what is lost is accepted by who looks at the servers",
    "repairs.accept_losses": "what is lost is accepted by who looks at the servers",
    "projections.status": "it is about the tables of a database, which `repairs.doctor` looks at",
    "projections.rebuild": "it reads the whole journal, and takes as long",
    "projections.verify": "it reads the whole journal, and takes as long",
    "people.set_password": "passwords are no part of the API",
    "people.groups_of": "`people.get` has them",
    "people.sign_in": "the page of the console signs in",
    "people.sign_in_vouched": "the page of the console signs in",
    "people.sign_in_by_link": "the page of the console signs in",
    "people.sign_out": "the page of the console signs out",
    "people.one_time_link": "who serves the console prints it",
    "people.identify": "it is done for each request",
    "people.is_login_required": "it is about commands on the machines of people",
    "people.require_login": "it is about commands on the machines of people",
    "erasure.kinds": "it is about the servers themselves",
    "erasure.encrypt": "it is about the servers themselves",
    "erasure.erase": "it is about the servers themselves",
    "client.publish": "`events.publish`",
    "client.signal": "`signals.send`",
    "client.fire": "`episodes.fire`",
}
"""Calls of the client that no operation makes, and what there is instead."""

OTHER_NAMES = {
    "nodes.list": "nodes.read",
    "approvals.approve": "approvals.decide",
    "approvals.deny": "approvals.decide",
}
"""Operations that are not called as their call of the client is."""


def commands(command, *before: str) -> list[str]:
    """Return every command below `command`, with its groups."""
    below = getattr(command, "commands", None)
    if not below:
        return [" ".join(before)]
    return [each for name, sub in below.items() for each in commands(sub, *before, name)]


def test_every_command_is_an_operation_or_has_a_reason_not_to_be():
    there = set(commands(typer.main.get_command(whole())))
    done = {command for each in OPERATIONS for command in each.commands}
    assert there - done - NOT_REMOTE.keys() == set()
    assert done - there == set()
    assert NOT_REMOTE.keys() - there == set()
    assert done & NOT_REMOTE.keys() == set()


def client_calls() -> set[str]:
    """Return the calls of the client, with the groups that they are in."""
    front = read(CLIENT)
    client = front.classes()["Client"]
    found = {f"client.{each.name}" for each in calls(client)}
    for group, type_, _ in groups(client):
        owner = read(front.homes()[type_]).classes()[type_]
        found |= {f"{group}.{each.name}" for each in calls(owner)}
    return found


def test_every_call_of_the_client_is_an_operation_or_has_a_reason_not_to_be():
    names = {OTHER_NAMES.get(each.name, each.name) for each in OPERATIONS}
    done = {each if "." in each else f"client.{each}" for each in names}
    assert client_calls() - done - NOT_CALLED.keys() == set()
    assert done - client_calls() == set()
    assert NOT_CALLED.keys() & done == set()
    assert NOT_CALLED.keys() - client_calls() == set()


def test_names_paths_and_fields_are_unambiguous():
    assert [each for each, n in Counter(o.name for o in OPERATIONS).items() if n > 1] == []
    places = Counter((o.method, re.sub(r"\{\w+\}", "{}", o.path)) for o in OPERATIONS)
    assert [each for each, n in places.items() if n > 1] == []
    for each in OPERATIONS:
        fields = {field.name for field in msgspec.structs.fields(each.asks)}
        assert {word[1:-1] for word in each.words if word.startswith("{")} <= fields, each.name
        assert not each.key or each.key in fields, each.name


def call_of_client(name: str):
    """Return the function that a call such as `episodes.list` is."""
    group, _, call = name.rpartition(".")
    client = Client.on(memory_ports(stack=Stack("shop"), clock=SystemClock()), by="ann")
    return getattr(getattr(client, group) if group else client, call)


DIFFERENT = {
    ("dead_letters.list", "status"): "a query cannot say none: `any` says it",
    ("findings.list", "status"): "a query cannot say none: `any` says it",
    ("episodes.wait", "timeout_s"): "proxies cut off longer requests",
    ("nodes.read", "node"): "`nodes.list` is of all",
    ("repairs.reconcile", "actors"): "the client takes any number",
    ("dead_letters.discard", "reason"): "the client has no default",
}
"""Fields whose default is another than the client's, and why."""


def test_what_is_left_out_means_what_the_client_means_by_it():
    for operation in OPERATIONS:
        call = call_of_client(OTHER_NAMES.get(operation.name, operation.name))
        parameters = inspect.signature(call).parameters
        for field in msgspec.structs.fields(operation.asks):
            place = (operation.name, field.name)
            if field.name not in parameters or place in DIFFERENT:
                continue
            wanted = parameters[field.name].default
            if field.name == "dry_run":  # None: an agent means true, and everybody else false.
                wanted = None
            if wanted is inspect.Parameter.empty:
                assert field.required, place
            else:
                assert field.default == wanted, place


def test_what_the_client_can_try_the_api_can_try():
    for operation in OPERATIONS:
        call = call_of_client(OTHER_NAMES.get(operation.name, operation.name))
        can_try = "dry_run" in inspect.signature(call).parameters
        assert can_try == ("dry_run" in operation.asks.__struct_fields__), operation.name


def test_the_document_is_of_openapi_31_and_hangs_together():
    assert DOCUMENT["openapi"] == "3.1.0"
    encoded = msgspec.json.encode(DOCUMENT).decode()
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', encoded))
    schemas = DOCUMENT["components"]["schemas"]
    assert named - schemas.keys() == set()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in schemas)
    for each in schemas.values():
        Draft202012Validator.check_schema(each)


def test_the_document_has_every_operation_with_who_may():
    told = {
        each["operationId"]: (path, method.upper(), each["x-vigil-role"], each["x-vigil-scope"])
        for path, methods in DOCUMENT["paths"].items()
        for method, each in methods.items()
    }
    assert told == {
        each.name: (each.path, each.method, each.role, each.scope) for each in OPERATIONS
    }


def test_the_document_has_every_parameter_of_a_path_and_of_a_query():
    for path, methods in DOCUMENT["paths"].items():
        for each in methods.values():
            placed = {name["name"] for name in each["parameters"] if name["in"] == "path"}
            assert placed == set(re.findall(r"\{(\w+)\}", path))
    listing = DOCUMENT["paths"]["/episodes"]["get"]["parameters"]
    assert {"status", "actor", "since", "after", "limit"} <= {each["name"] for each in listing}
    firing = DOCUMENT["paths"]["/episodes"]["post"]
    assert {"Idempotency-Key"} == {each["name"] for each in firing["parameters"]}
    body = firing["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["actor", "expectation"]
    assert body["additionalProperties"] is False


async def test_the_document_is_served_to_whoever_is_known(api):
    answer = await api.get("/openapi.json")
    assert answer.json() == msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    del api.headers["x-role"]
    assert (await api.get("/openapi.json")).status_code == 401


def test_the_problems_are_those_that_the_module_lists():
    text = (ROOT / "vigil/web/api/problems.py").read_text()
    listed = re.findall(r"urn:vigil:problem:([a-z-]+) +(\d+)", text)
    assert [(each.name, str(each.status)) for each in KINDS] == listed
