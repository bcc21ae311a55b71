"""The product as users meet it: real servers and processes, clients of plain NATS and SQL."""
