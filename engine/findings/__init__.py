"""Findings: what episodes report, how it expires and escalates, and what people do with it.

Read `finding.py`, the aggregate, first; what strategies write is `engine.app.findings`.
"""
