"""Money: what requests to models cost, and who may spend how much. Read `window.py` first."""
