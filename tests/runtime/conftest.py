"""Fixtures of the launch tests."""

from tests.runtime.standin import driver

__all__ = ["driver"]
