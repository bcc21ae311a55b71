"""The engine's doers, on ports in memory and the machine's clock."""
