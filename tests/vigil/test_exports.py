"""Lists as files for other programs: whole or not there, with the filters of the list."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.vigil.test_command_line import one_line
from tests.vigil.test_listing import put_episodes
from vigil.printing.exports import WRITERS

ID = UUID("a6b6f0a2-0000-8000-8000-000000000001")

AT = datetime(2030, 1, 31, 9, tzinfo=UTC)
AT_TEXT = AT.isoformat().replace("+00:00", "Z")


class Thing(msgspec.Struct, kw_only=True):
    """A record with a value of each kind."""

    id: UUID = ID
    name: str | None = "plain"
    count: int | None = 3
    usd: Decimal | None = Decimal("0.0012")
    at: datetime | None = AT
    is_open: bool = True
    more: dict[str, object] | None = None


def written(format_: str, *things: msgspec.Struct) -> bytes:
    file = io.BytesIO()
    writer = WRITERS[format_](file, type(things[0]) if things else Thing)
    for each in things:  # A page each.
        writer.write([each])
    writer.close()
    return file.getvalue()


def test_csv_has_a_line_of_names_and_what_is_within_as_json():
    data = written("csv", Thing(more={"a": [1, "é"]}), Thing(name=None, count=None, usd=None))
    names, first, second = csv.reader(io.StringIO(data.decode()))
    assert names == ["id", "name", "count", "usd", "at", "is_open", "more"]
    assert first == [
        str(ID), "plain", "3", "0.0012", AT_TEXT, "true", '{"a":[1,"é"]}',
    ]  # fmt: skip
    assert second == [str(ID), "", "", "", AT_TEXT, "true", ""]


class Named(msgspec.Struct, rename={"class_": "class"}):
    class_: str


@pytest.mark.parametrize("format_", ["csv", "jsonl", "parquet"])
def test_a_column_is_called_as_in_json(format_):
    data = written(format_, Named("disk"))
    match format_:
        case "csv":
            assert data.split() == [b"class", b"disk"]
        case "jsonl":
            assert json.loads(data) == {"class": "disk"}
        case _:
            assert pq.read_table(io.BytesIO(data)).to_pylist() == [{"class": "disk"}]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"])
def test_no_cell_of_a_csv_is_a_formula(text):
    data = written("csv", Thing(name=text, count=-3))
    _, row = csv.reader(io.StringIO(data.decode(), newline=""))
    assert (row[1], row[2]) == (f"'{text}", "-3")


def test_json_lines_are_a_record_each():
    data = written("jsonl", Thing(more={"a": 1}), Thing(name="é"))
    first, second = map(json.loads, data.splitlines())
    assert (first["more"], first["usd"], second["name"]) == ({"a": 1}, "0.0012", "é")


def test_parquet_has_the_types_of_the_columns_however_empty_they_are():
    empty = Thing(name=None, count=None, usd=None, at=None)
    table = pq.read_table(io.BytesIO(written("parquet", empty, Thing(more={"a": 1}))))
    first, second = table.to_pylist()
    assert (first["name"], first["count"], first["usd"], first["at"]) == (None,) * 4
    assert (second["count"], second["usd"], second["at"]) == (3, Decimal("0.0012"), AT)
    assert (second["more"], second["id"]) == ('{"a":1}', str(ID))


def test_a_list_is_exported_with_its_filters_up_to_a_most(connected, tmp_path):
    ids = put_episodes(connected, "a", "b", "a")
    with connected.running("project"):
        connected.wait_for("episodes", "list", until=lambda rows: len(rows) == 3)

    done = connected.run("export", "episodes", "--subject", "a", "--format", "jsonl")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["episode_id"] for each in found] == [ids[2], ids[0]]
    assert done.stderr == ""

    out = Path(tmp_path, "episodes.csv")
    done = connected.run("export", "episodes", "--out", str(out), "--most", "2")
    assert "2 episodes in" in done.stdout
    assert "more than 2" in done.stderr
    assert len(out.read_text().splitlines()) == 3
    assert out.stat().st_mode & 0o777 == 0o600
    for what in ("findings", "outputs", "orders", "costs"):
        parquet = tmp_path / f"{what}.parquet"
        done = connected.run("export", what, "--format", "parquet", "--out", str(parquet))
        assert done.returncode == 0, done.stderr
        assert pq.read_table(parquet).num_rows == 0
    assert not [*tmp_path.glob(".*.partial")]


def test_what_cannot_be_exported_is_refused(connected, tmp_path):
    assert "--adapter" in one_line(connected.run("export", "episodes", "--adapter", "x"), code=2)
    assert "--out" in one_line(connected.run("export", "costs", "--format", "parquet"), code=2)
    lost = tmp_path / "nowhere" / "x.csv"
    assert "nowhere" in one_line(connected.run("export", "costs", "--out", str(lost)), code=1)
