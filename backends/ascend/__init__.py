"""TileHAL backend for Huawei Ascend NPUs."""
