"""TileHAL backend for the imaginary Nova accelerators. Importing it does nothing; `plugin` has the hooks."""
