"""Hooks of the Huawei Ascend NPUs backend."""

from __future__ import annotations
