"""Webhooks in: what other systems send becomes domain events.

    headers, body ──▶ signature (`signatures`) ──▶ mapping (a file for each source) ──▶ events

A file (`file`) names the webhooks of a console: what sends to each, and the secrets. Everything
here but reading that file is a pure function of what was sent.
"""
