"""Hooks of the MetaX GPUs backend."""

from __future__ import annotations
