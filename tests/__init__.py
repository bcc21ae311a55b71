"""Tests: the specification of Vigil, in sentences."""
