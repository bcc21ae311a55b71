"""The log: data, wire formats and ports, with adapters in memory and on JetStream.

Read `model/events/` first: it is everything that can happen. `subjects.py` says where on the log it
is written. `ports/` is what the engine and the projections ask of the log; `memory/` implements the
ports in dicts, `jetstream/` on a NATS server, and both pass the same contract suite.
"""
