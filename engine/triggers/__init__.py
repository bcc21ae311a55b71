"""Triggers: which causes open episodes: events, schedules, debounced events, fires by hand.

`rules.py` decides about one event, with the state that `evaluate.py` reads; `admit.py` opens the
episode. Read `rules.py` first; what users declare is `engine.app.triggers`.
"""
