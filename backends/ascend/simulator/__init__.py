"""Runs the modules given to Huawei's compiler on this machine's CPU. docs/ascend.md says what that proves."""
