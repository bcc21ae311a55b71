"""What events do: what became of one, what rules would do with those that are kept."""
