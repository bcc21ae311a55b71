"""What every implementation of a port promises. Memory and JetStream run the same tests."""
