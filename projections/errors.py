"""What can go wrong with the read models, and what the caller should do about it.

ProjectionError
├── PostgresUnavailable   no server, or no answer            wait and try again
├── ProjectorFenced       another projector moved on          write nothing more, stand by
├── RowsRefused           Postgres does not take the rows     a newer version, or a person
├── OtherJournal          the rows are of another layout      drop the rows: they come back
├── NotCaughtUp           rows do not show the commit yet     wait longer, or see who projects
├── MigrationChanged      an applied migration was edited     restore the file, or rebuild
├── MigrationUnknown      another version made the tables   drop the rows: they come back
├── BadProjection         it declares what cannot be          its author: correct it
├── CustomFailed          its code raised, or named no table  its author: correct it
├── CustomChanged         it declares other tables            give it another name
├── OtherHistory          a rebuild was of another log        begin it anew
├── RebuildRunning        another rebuild is at it            wait for its end
├── NotMigrated           the tables are of another version   start a projector of this one
├── QueryRefused          Postgres does not run this query    the caller's input: report it
├── BadPlace              not a place on this journal         the caller's input: report it
└── BadSchema             cannot name a schema                the caller's input: report it
"""

from __future__ import annotations


class ProjectionError(Exception):
    """Base of every error raised by `projections`."""


class PostgresUnavailable(ProjectionError):
    """Postgres could not be reached. The message never has a password."""

    def __init__(self, where: str = "", *, detail: str) -> None:
        super().__init__(f"Postgres at {where}: {detail}" if where else f"Postgres: {detail}")
        self.where = where


class ProjectorFenced(ProjectionError):
    """The checkpoint is not where we left it: someone else projects. Nothing was written."""

    def __init__(self, projection: str, *, expected: int) -> None:
        super().__init__(f"{projection}: the checkpoint is no longer at {expected}")
        self.projection = projection
        self.expected = expected


class RowsRefused(ProjectionError):
    """Postgres does not take what a batch asks for, and will not however often it is asked."""

    def __init__(self, projection: str, *, first: int, last: int, statement: str, why: str) -> None:
        super().__init__(f"{projection}: messages {first} to {last}, {statement}: {why}")
        self.projection = projection


class OtherJournal(ProjectionError):
    """The rows were made from streams of another layout."""

    def __init__(self, stream: str, *, detail: str) -> None:
        super().__init__(
            f"stream {stream} {detail}. The stack was spread anew. Stop every projector, drop the "
            "schema vigil with CASCADE, and start one: it makes the rows again from what the log "
            "holds now"
        )
        self.stream = stream


class NotCaughtUp(ProjectionError):
    """The rows did not reach a position in time."""

    def __init__(self, projection: str, *, wanted: int, reached: int, waited_s: float) -> None:
        super().__init__(
            f"{projection}: at {reached} of {wanted} after {waited_s:g} s; does a projector run?"
        )
        self.wanted = wanted
        self.reached = reached


class MigrationChanged(ProjectionError):
    """A migration that was applied is not the file we have."""

    def __init__(self, name: str, *, schema: str) -> None:
        super().__init__(
            f"migration {name} was changed after it was applied to schema {schema}; "
            "restore the file, or project into another schema"
        )
        self.name = name


class MigrationUnknown(ProjectionError):
    """The schema has a migration that is none of ours, and lacks one of ours."""

    def __init__(self, name: str, *, lacks: str, schema: str) -> None:
        super().__init__(
            f"schema {schema} was made by another version of Vigil, with the migration {name} and "
            f"without {lacks}. Stop every projector, drop the schema {schema} with CASCADE, and "
            "start one: it makes the rows again from what the log holds"
        )
        self.name = name


class BadProjection(ProjectionError, ValueError):
    """A projection of a user declares what cannot be."""


class CustomFailed(ProjectionError):
    """The code of a projection of a user raised, or asks for what it has not declared."""

    def __init__(self, name: str, *, place: str, why: str) -> None:
        super().__init__(f"projection {name} at {place}: {why}")
        self.name = name


class CustomChanged(ProjectionError):
    """The tables of a projection of a user are not those that it declares now."""

    def __init__(self, name: str, *, schema: str) -> None:
        super().__init__(
            f"projection {name} declares other tables than schema {schema} has; give it another "
            "name, or drop that schema: it is filled from the journal again"
        )
        self.name = name


class OtherHistory(ProjectionError):
    """A rebuild that was left unfinished read another log than the one that is there."""

    def __init__(self, stream: str, *, position: int) -> None:
        super().__init__(
            f"stream {stream} has another commit at {position} than the unfinished rebuild has "
            "seen; begin anew with --anew"
        )
        self.stream = stream


class RebuildRunning(ProjectionError):
    """Somebody else makes new rows of the stack at this moment."""

    def __init__(self, stack: str) -> None:
        super().__init__(f"the tables of stack {stack} are being rebuilt or verified already")
        self.stack = stack


class NotMigrated(ProjectionError):
    """The tables were made by other migrations than this version has."""

    def __init__(self, schema: str, *, detail: str) -> None:
        super().__init__(
            f"schema {schema} {detail}. Start a projector of this version first: it brings the "
            "tables to the shape that a rebuild fills"
        )
        self.schema = schema


class QueryRefused(ProjectionError):
    """Postgres does not run the query: a mistake in it, a write, or too long."""


class BadPlace(ProjectionError, ValueError):
    """A sequence without its partition, or of one that the stack does not have."""


class BadSchema(ProjectionError, ValueError):
    """A name cannot be that of a schema."""
