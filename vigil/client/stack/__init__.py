"""Calls about the stack itself: its nodes, definitions, orders, people and costs."""
