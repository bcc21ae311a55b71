"""What users write: actors, expectations, strategies, tools, triggers, outputs and workflows.

All declarations, or pure checks of them. `App` collects them. Users import them from `vigil`.
"""
