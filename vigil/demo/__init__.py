"""Actors that watch the machine they run on.

`publisher.py` measures the machine and publishes what it sees; it knows NATS and nothing of
Vigil. `monitor.py` decides what of that is worth a finding, `advisor.py` looks closer at what
was found, `inspection.py` is how it looks, and `app.py` puts them together:

    vigil up --app vigil.demo.app:app
    python -m vigil.demo.publisher
"""
