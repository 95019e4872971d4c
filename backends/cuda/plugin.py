"""Hooks of the NVIDIA GPUs backend."""

from __future__ import annotations
