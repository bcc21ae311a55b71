"""Screens of the stack itself: nodes, definitions, orders and costs."""
