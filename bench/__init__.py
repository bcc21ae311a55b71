"""Measurements. Nothing here is a test: machines are noisy, so compare within one run."""
