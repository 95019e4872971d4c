"""Hooks of the the host CPU backend."""

from __future__ import annotations
