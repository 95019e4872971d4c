"""Finds the sub-packages; everything else is in pyproject.toml.

With package-dir set to ".", setuptools' own discovery would name them `codegen`, not `backends.cpu.codegen`, and a
list by hand is forgotten as soon as somebody adds a folder: an editable install still works, the wheel does not.
"""

from setuptools import find_packages, setup

PACKAGE = "backends.cpu"

setup(
    # Said so that this file, which lies in the package's folder, is known not to be a module of it.
    script_name="setup.py",
    packages=[PACKAGE, *(f"{PACKAGE}.{name}" for name in find_packages(exclude=["tests", "tests.*"]))],
)
