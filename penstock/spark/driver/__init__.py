"""What runs on the driver: commands, the sink of a micro-batch, checkpoint metadata, adaptation."""
