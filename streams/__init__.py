"""The log: events, subjects, codec, errors, clock; the ports; and their two adapters.

Read `events` first: it is everything that can happen. `subjects.py` says where
on the log it is written. The ports (`log`, `inbox`, `world`, `leases`, `bucket`,
`timers`) are what the engine and the projections ask of the log; `memory/` answers them in
dicts, `jetstream/` on a NATS server, and both pass the same contract suite.
"""
