"""The keys of subjects of data on NATS, for the ports in `streams/sealing`."""
