"""TileHAL backend for MetaX GPUs."""
