"""Kernels with a mistake put into them: the oracle of the oracle."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from core.conformance.schedules import ScheduleFault, run_schedule


def mutant(module: str, folder: Path, old: str, new: str) -> ModuleType:
    """A module of ours with its first `old` replaced by `new`, as a file in `folder`."""
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).read_text()
    assert old in source, f"{module} no longer has {old!r}: put the mistake somewhere else"
    file = folder / f"{module.rsplit('.', 1)[-1]}_changed.py"
    file.write_text(source.replace(old, new, 1))
    spec = importlib.util.spec_from_file_location(f"{file.stem}_{abs(hash((old, new)))}", file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def first_fault(kernel: Any, tensors: Callable[[], list[Any]], seeds: int = 6, **options: Any) -> ScheduleFault | None:
    """What the first of several orders finds."""
    for seed in range(seeds):
        try:
            run_schedule(kernel, tensors(), seed=seed, **options)
        except ScheduleFault as fault:
            return fault
    return None
