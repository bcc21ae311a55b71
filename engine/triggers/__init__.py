"""Triggers: which causes open episodes: events, schedules, debounced events, fires by hand.

`rules.py` decides about one event; `evaluate.py` adds what the cluster remembers; `admit.py` opens
the episode. Read `rules.py` first; what users declare is `engine.app.triggers`.
"""
