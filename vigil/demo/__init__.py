"""Actors that watch the machine they run on: `app.py`, for `vigil up --app vigil.demo.app:app`.

`publisher.py` measures the machine; it knows NATS and nothing of Vigil. `investigation.py` is an
agent that investigates, and `scripted_model.py` its model where there is no key.
"""
