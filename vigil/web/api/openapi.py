"""The OpenAPI 3.1 document of the API, made of its operations. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from vigil.version import vigil_version
from vigil.web.api.operation import AnyOperation
from vigil.web.api.problems import MEDIA_TYPE, Problem
from vigil.web.api.table import OPERATIONS

Schema = dict[str, Any]

REFERENCE: Final = "#/components/schemas/{name}"

DOCUMENT_PATH: Final = "/openapi.json"

DESCRIPTION: Final = (
    "What the commands of Vigil do, for programs. Lists have no payloads; their pages follow one "
    "another by `after`. Errors are problem details (RFC 9457), told apart by `type`."
)


def document(operations: Sequence[AnyOperation] = OPERATIONS) -> Schema:
    """Return the document."""
    types = [each for operation in operations for each in (operation.asks, operation.gives)]
    schemas, components = msgspec.json.schema_components(
        [*types, Problem], schema_hook=_anything, ref_template=REFERENCE
    )
    asked, given = schemas[:-1:2], schemas[1:-1:2]
    paths: dict[str, Schema] = {}
    for operation, asks, gives in zip(operations, asked, given, strict=True):
        fields = components[asks["$ref"].rpartition("/")[2]]
        path = paths.setdefault(operation.path, {})
        path[operation.method.lower()] = _operation(operation, fields, gives, schemas[-1])
    # What is asked is in the parameters and the bodies, with what the path says left out.
    left = {each["$ref"].rpartition("/")[2] for each in asked}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Vigil", "version": vigil_version(), "description": DESCRIPTION},
        "servers": [{"url": "/api/v1"}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {
                name: each for name, each in sorted(components.items()) if name not in left
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(operation: AnyOperation, fields: Schema, gives: Schema, problem: Schema) -> Schema:
    """Return an operation as the document has it; `fields` is the schema of what it takes."""
    in_path = {each[1:-1] for each in operation.words if each.startswith("{")}
    properties: Mapping[str, Schema] = fields["properties"]
    required = set(fields.get("required", ()))
    others = {name: each for name, each in properties.items() if name not in in_path}
    said: Schema = {
        "operationId": operation.name,
        "summary": operation.does,
        "tags": [operation.name.partition(".")[0]],
        "parameters": [_parameter(name, properties[name], "path") for name in sorted(in_path)],
        "responses": {
            "200": {"description": "Done.", "content": {_media_type(operation): {"schema": gives}}},
            "default": _problem(problem),
        },
        "x-vigil-role": operation.role.value,
        "x-vigil-scope": operation.scope,
        "x-vigil-people-only": operation.of_people,
    }
    if operation.is_stream:
        last = {"type": "integer", "minimum": 0}
        said["parameters"].append(_parameter("Last-Event-ID", last, "header"))
    if operation.key:
        said["parameters"].append(_parameter("Idempotency-Key", {"type": "string"}, "header"))
    if not operation.has_body:
        said["parameters"] += [
            _parameter(name, each, "query", required=name in required)
            for name, each in others.items()
        ]
        return said
    whole = properties[operation.whole] if operation.whole else None
    body = whole or {
        "type": "object",
        "properties": others,
        "required": sorted(required - in_path),
        "additionalProperties": False,
    }
    said["requestBody"] = {
        "required": bool(required - in_path),
        "content": {"application/json": {"schema": body}},
    }
    return said


def _media_type(operation: AnyOperation) -> str:
    return "text/event-stream" if operation.is_stream else "application/json"


def _parameter(name: str, schema: Schema, place: str, *, required: bool = False) -> Schema:
    parameter = {"name": name, "in": place, "schema": schema}
    return {**parameter, "required": True} if required or place == "path" else parameter


def _problem(problem: Schema) -> Schema:
    return {
        "description": "Something is wrong; `type` says what.",
        "content": {MEDIA_TYPE: {"schema": problem}},
    }


def _anything(_: type) -> Schema:
    """Return the schema of what may be any JSON."""
    return {"description": "Any JSON."}
