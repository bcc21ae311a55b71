"""What tests of moving a stack to other partitions share."""

from __future__ import annotations

from streams.jetstream import LinkSettings


class Cut(Exception):
    """The program ends here."""


def told(*_: object) -> None:
    pass


def cut_off_at(stage):
    """Return what ends the program at its second report of `stage`."""
    reports = []

    def tell(said, done, total):
        if said == stage:
            reports.append(done)
        if len(reports) == 2:
            raise Cut

    return tell


def settings(partitions=None):
    return LinkSettings(partitions=partitions, lease_ttl_s=5.0, patience_s=1.0)
