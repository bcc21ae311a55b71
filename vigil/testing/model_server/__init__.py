"""A server of models for tests: a provider on loopback that answers as a test says.

See `ModelServer`. In a process of its own, for tests that kill nodes:

    python -m vigil.testing.model_server --script my_tests.models:answer --port 0

prints its address as one line, and `GET /ledger` returns what it was asked for, as the JSON of a
`ModelLedger`.
"""
