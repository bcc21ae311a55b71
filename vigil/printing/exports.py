"""Records as files for other programs: CSV, JSON lines, Parquet. Written as they come.

A cell of a CSV that a spreadsheet would take for a formula begins with an apostrophe. What is an
object or a list is JSON in CSV and in Parquet.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from types import NoneType
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, get_args, get_type_hints
from uuid import UUID

import msgspec

from vigil.errors import Trouble

if TYPE_CHECKING:
    import pyarrow

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What begins a cell that spreadsheets take for a formula."""

_PLAIN: Final = (str, bool, int, float)

MONEY_DIGITS: Final = 38
MONEY_PLACES: Final = 18
"""Of sums in Parquet: more than any price has."""


class ExportWriter(Protocol):
    """Writes records of one type."""

    def write(self, items: Sequence[msgspec.Struct]) -> None:
        """Add records."""

    def close(self) -> None:
        """Write what is left."""


def columns_of(type_: type[msgspec.Struct]) -> Mapping[str, type]:
    """Return the columns of records, by name, with the type of their values; `object` is JSON."""
    hints = get_type_hints(type_)
    return {name: _type_in(hints[field]) for name, field in _fields(type_).items()}


def _fields(type_: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the field of each column: one that is called as a word of Python has another name."""
    return {each.encode_name: each.name for each in msgspec.structs.fields(type_)}


def _type_in(hint: Any) -> type:  # noqa: ANN401 - any annotation
    found = [each for each in get_args(hint) or (hint,) if each is not NoneType]
    known = {*_PLAIN, datetime, Decimal, UUID}
    only = found[0] if len(found) == 1 and isinstance(found[0], type) else object
    return only if only in known else object


class CsvWriter:
    """CSV (RFC 4180) with a line of names, in UTF-8."""

    def __init__(self, file: IO[bytes], type_: type[msgspec.Struct]) -> None:
        self._file, self._fields = file, _fields(type_)
        self._line([*self._fields])

    def write(self, items: Sequence[msgspec.Struct]) -> None:
        """See `ExportWriter.write`."""
        for item in items:
            self._line([_cell(getattr(item, name)) for name in self._fields.values()])

    def close(self) -> None:
        """See `ExportWriter.close`."""

    def _line(self, cells: Sequence[str]) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="\r\n").writerow(cells)
        self._file.write(line.getvalue().encode(errors="replace"))


class JsonLinesWriter:
    """JSON objects, one a line."""

    def __init__(self, file: IO[bytes], type_: type[msgspec.Struct]) -> None:  # noqa: ARG002 - as the others
        self._file = file

    def write(self, items: Sequence[msgspec.Struct]) -> None:
        """See `ExportWriter.write`."""
        for item in items:
            self._file.write(msgspec.json.encode(item) + b"\n")

    def close(self) -> None:
        """See `ExportWriter.close`."""


class ParquetWriter:
    """Parquet, a row group for each page."""

    def __init__(self, file: IO[bytes], type_: type[msgspec.Struct]) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise Trouble(
                "the library for Parquet is missing", remedy="install the extra `parquet`"
            ) from error
        self._pa, self._columns, self._fields = pa, columns_of(type_), _fields(type_)
        fields = [(name, _arrow_type(pa, each)) for name, each in self._columns.items()]
        self._schema = pa.schema(fields)
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")

    def write(self, items: Sequence[msgspec.Struct]) -> None:
        """See `ExportWriter.write`."""
        rows = [
            {
                name: _value(getattr(item, self._fields[name]), type_)
                for name, type_ in self._columns.items()
            }
            for item in items
        ]
        if rows:
            self._writer.write_table(self._pa.Table.from_pylist(rows, schema=self._schema))

    def close(self) -> None:
        """See `ExportWriter.close`."""
        self._writer.close()


WRITERS: Final[Mapping[str, Callable[[IO[bytes], type[msgspec.Struct]], ExportWriter]]] = {
    "csv": CsvWriter,
    "jsonl": JsonLinesWriter,
    "parquet": ParquetWriter,
}
"""Format → what writes it."""


def _arrow_type(pa: Any, type_: type) -> pyarrow.DataType:  # noqa: ANN401 - the module
    made: pyarrow.DataType = {
        bool: pa.bool_(),
        int: pa.int64(),
        float: pa.float64(),
        datetime: pa.timestamp("us", tz="UTC"),
        Decimal: pa.decimal128(MONEY_DIGITS, MONEY_PLACES),
    }.get(type_, pa.string())
    return made


def _value(value: object, type_: type) -> object:
    if value is None or type_ in {bool, int, float, datetime, Decimal}:
        return value
    return _text(value)


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = _text(value)
    is_text = not isinstance(value, int | float | Decimal)
    # guard: csv-cell-is-no-formula
    return f"'{text}" if is_text and text.startswith(_FORMULA) else text


def _text(value: object) -> str:
    match value:
        case str():
            return value
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case UUID() | Decimal() | float():
            return str(value)
        case _:
            return msgspec.json.encode(value).decode()
