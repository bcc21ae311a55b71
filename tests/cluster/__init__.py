"""Three NATS servers as one JetStream cluster: whatever holds on one server holds on three."""
