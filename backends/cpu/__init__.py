"""TileHAL backend for the host CPU."""
