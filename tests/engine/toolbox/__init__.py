"""Adapters against receivers that behave, and that do not."""
