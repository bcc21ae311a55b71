"""`vigil users`, `tokens`, `login`, `logout` and `whoami`."""
