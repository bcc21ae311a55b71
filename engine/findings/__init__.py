"""Findings: what episodes report, how it expires and escalates, and what people do with it.

`finding.py` is the aggregate; `apply.py` carries out an episode's intents, `expire.py` what time
does. Read `finding.py` first; what strategies write is `engine.app.findings`.
"""
