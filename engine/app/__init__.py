"""What users write: actors, expectations, strategies, tools, triggers, outputs and workflows.

Everything here is a declaration or a pure check of one. `App` (`app.py`) collects them; read
`actor.py` and `strategy.py` first. Users import these names from `vigil`.
"""
