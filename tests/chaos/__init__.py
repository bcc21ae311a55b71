"""Nodes that are killed, frozen and cut off while they work, and what must be true afterwards.

    python -m tests.chaos --runs 3 --episodes 1000 --nodes 3 --lease-s 2 --seed 7

Everything is real: a NATS server that syncs every message, a Postgres, `vigil node` processes,
and a ledger process that stands for the outside world. `faults` plans what goes wrong and when,
from a seed; `run` does it; `verdict` reads the journal, the ledger and the tables afterwards.
"""
