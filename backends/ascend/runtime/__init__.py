"""Launching: what a kernel's arguments become, and Huawei's public runtime (ACL). docs/ascend.md, "Launching"."""
