"""What people run beside nodes; every operation is safe to repeat. Read `sweep.py` first."""
