"""Checks that a backend keeps the meaning of kernels."""
