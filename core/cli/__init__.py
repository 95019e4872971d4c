"""The commands: one module each, thin; everything they show is reachable from Python."""
