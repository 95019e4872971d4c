"""TileHAL backend for NVIDIA GPUs."""
