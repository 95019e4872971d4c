"""What each hook must return, and the check that it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class ResultType:
    """The type a hook returns: an instance of `module.name`, or a sequence of them when `many`.

    The class is named, not imported: checking the result of one hook must not load what the others need.
    """

    module: str
    name: str
    many: bool = False

    def __str__(self) -> str:
        return f"Sequence[{self.name}]" if self.many else f"{self.name} or None"

    def fault(self, value: object) -> str | None:
        """What is wrong with a returned value, or None. None itself is always allowed: it means nothing to say."""
        if value is None:
            return None
        if not self.many:
            return None if self._is_instance(value) else f"it returned {_describe(value)} instead of {self}"
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return f"it returned {_describe(value)} instead of {self}"
        for index, item in enumerate(value):
            if not self._is_instance(item):
                return f"item {index} of what it returned is {_describe(item)}, not {self.name}"
        return None

    def _is_instance(self, value: object) -> bool:
        if self.name == "Launcher":
            # A protocol with nothing but __call__; every callable satisfies it.
            return callable(value)
        expected: Any = getattr(import_module(self.module), self.name)
        return isinstance(value, expected)


#: By hook. Agrees with the annotations in hookspecs.py, which a test checks.
RESULT_TYPES: dict[str, ResultType] = {
    "tilehal_chips": ResultType("core.hardware", "Chip", many=True),
    "tilehal_detect": ResultType("core.plugins.records", "DetectedDevice", many=True),
    "tilehal_answers": ResultType("core.plugins.records", "Answer", many=True),
    "tilehal_tile_rules": ResultType("core.tiling", "TileRule", many=True),
    "tilehal_tuned_tables": ResultType("pathlib", "Path", many=True),
    "tilehal_lower": ResultType("core.compiler.artifacts", "LoweredKernel"),
    "tilehal_toolchain": ResultType("core.compiler.artifacts", "Toolchain"),
    "tilehal_build": ResultType("core.compiler.artifacts", "BuiltKernel"),
    "tilehal_launcher": ResultType("core.runtime.launcher", "Launcher"),
    "tilehal_export": ResultType("core.compiler.artifacts", "Export"),
    "tilehal_load": ResultType("core.runtime.exported", "LoadedExport"),
    "tilehal_simulator": ResultType("core.runtime.launcher", "Launcher"),
    "tilehal_fusion_rules": ResultType("core.plugins.records", "FusionRule", many=True),
    "tilehal_diagnose": ResultType("core.plugins.records", "Finding", many=True),
}


def _describe(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
