"""The engine: its rules here, its doers in `runtime`."""
