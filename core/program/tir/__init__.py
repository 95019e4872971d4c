"""From a PrimFunc to the tile-level view: the only part of `core.program` that touches TVM."""
