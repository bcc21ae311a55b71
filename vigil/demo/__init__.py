"""Actors that watch the machine they run on: `app.py`, for `vigil up --app vigil.demo.app:app`.

`publisher.py` measures the machine; it knows NATS and nothing of Vigil.
"""
