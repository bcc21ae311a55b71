"""What may be typed: the arguments of each command, and their words."""
