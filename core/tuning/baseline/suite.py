"""What a baseline measures: kernels with their parameters and targets, from a TOML or JSON file or given one by one."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from core.errors import BaselineError, TileHALError

#: Suites that come with TileHAL, by the kind of target they are for.
_DEFAULTS = {"cpu": "operators-cpu.toml", "": "operators.toml"}
_KERNEL_KEYS = ("source", "target", "parameters", "shapes", "symbols", "reference", "inputs", "tolerance", "flops")
#: What some of them are, in words that an error says.
_KINDS = {
    **dict.fromkeys(("target", "reference", "inputs"), "a text"),
    "symbols": "a table of extents",
    "tolerance": "a share of 0 or more",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One row of a baseline.

    Attributes:
        kernel: `FILE:FUNCTION` or `package.module:function`.
        target: what it is compiled for.
        parameters: arguments of the factory, tile parameters among them where they are fixed.
        symbols: extents of the kernel's symbolic dimensions.
        reference: a function, named like the kernel, called with the inputs in order and those of the parameters that
            it takes by keyword; returns the right output, or a list of them. Empty where there is none.
        inputs: a function, named like the kernel, called with the parameters by name; returns what to use instead of
            random arguments, as `values` of :func:`core.tuning.inputs.make_arguments`.
        flop_formula: operations of one call that count, over the parameters and symbols: `2 * M * N * K`. Empty where
            those in the kernel's text do, which has padded tiles and loops' upper bounds in it.
        tolerance: share by which an element may be off, see :mod:`core.tuning.checking`; by output dtype when None.
    """

    kernel: str
    target: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    symbols: Mapping[str, int] = field(default_factory=dict)
    reference: str = ""
    inputs: str = ""
    tolerance: float | None = None
    flop_formula: str = ""

    @property
    def operations(self) -> float | None:
        """What `flop_formula` comes to, None where it is empty. Raises BaselineError when it cannot be evaluated."""
        if not self.flop_formula:
            return None
        from core.runtime.extents import Expression

        try:
            return float(Expression(self.flop_formula)({**self.parameters, **self.symbols}))
        except (TileHALError, ArithmeticError, SyntaxError, TypeError, ValueError) as error:
            raise BaselineError(
                f"{self.name}: flops = {self.flop_formula!r} cannot be evaluated: {error}",
                hint="write arithmetic over the parameters, as in 2 * M * N * K",
            ) from error

    @property
    def name(self) -> str:
        """For people: `gemm(M=4096, N=4096, K=4096)`."""
        given = {**self.parameters, **self.symbols}
        return f"{self.kernel.rpartition(':')[2]}({', '.join(f'{name}={value}' for name, value in given.items())})"

    @property
    def work(self) -> str:
        """Identifies the work whatever the chip: canonical JSON."""
        return json.dumps([self.kernel, dict(self.parameters), dict(self.symbols)], sort_keys=True)

    @property
    def key(self) -> str:
        """Identifies the row."""
        return f"{self.target} {self.work}"

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data, without what is empty."""
        data = {**asdict(self), "parameters": dict(self.parameters), "symbols": dict(self.symbols)}
        return {name: value for name, value in data.items() if value or name in ("kernel", "target", "parameters")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        """The inverse of :meth:`to_json`; other keys are ignored."""
        fields = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**fields)


def load_suite(path: Path, target: str = "auto") -> list[Case]:
    """The cases of a suite file, which is TOML, or JSON of the same form.

        [[kernel]]
        source = "kernels.py:softmax"             # beside the suite, or package.module:function
        parameters = { dtype = "float16" }
        shapes = [{ M = 4096, N = 4096 }, { M = 16384, N = 1024 }]
        reference = "references.py:softmax"       # optional
        target = "cuda:h200"                      # optional; else `target`

    Raises:
        BaselineError: the file cannot be read, or has a key that means nothing.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise BaselineError(
            f"{path} cannot be read as a suite: {getattr(error, 'strerror', None) or error}",
            hint="see docs/baselines.md",
        ) from error
    kernels = data.get("kernel") if isinstance(data, Mapping) else None
    if not isinstance(kernels, list) or not kernels or set(data) != {"kernel"}:
        raise BaselineError(f"{path} is no suite", hint="it must hold [[kernel]] tables and nothing else")
    cases: list[Case] = []
    for place, entry in enumerate(kernels, start=1):
        cases += _cases(path, place, entry, target)
    return distinct(cases)


def default_suite(target: str) -> list[Case]:
    """The project's operators, at sizes that suit the target: an accelerator's, or a CPU's."""
    vendor = target.partition(":")[0]
    return load_suite(Path(__file__).parent / "suites" / _DEFAULTS.get(vendor, _DEFAULTS[""]), target)


def distinct(cases: Iterable[Case]) -> list[Case]:
    """The cases, each once, in the order they were given."""
    return list({case.key: case for case in cases}.values())


def resolved(cases: Iterable[Case]) -> list[Case]:
    """The cases with the chip that each target means here.

    Raises as :func:`core.target.resolve`.
    """
    from core.target import resolve

    names = {case.target for case in cases}
    chips = {name: resolve(name).chip.target for name in names}
    return distinct(replace(case, target=chips[case.target]) for case in cases)


def _cases(path: Path, place: int, entry: Any, target: str) -> list[Case]:
    where = f"{path}: kernel {place}"
    if not isinstance(entry, Mapping) or not isinstance(entry.get("source"), str):
        raise BaselineError(f"{where} has no source", hint='for example source = "kernels.py:softmax"')
    unknown = [name for name in entry if name not in _KERNEL_KEYS]
    if unknown:
        raise BaselineError(
            f"{where}: {unknown[0]!r} means nothing here", hint=f"it may have {', '.join(_KERNEL_KEYS)}"
        )
    for name, wanted in _KINDS.items():
        if name in entry and not _is(entry[name], wanted):
            raise BaselineError(f"{where}: {name} = {entry[name]!r}, and it is {wanted}", hint="see docs/baselines.md")
    shapes = entry.get("shapes", [{}])
    common = entry.get("parameters", {})
    if not isinstance(shapes, list) or not all(isinstance(item, Mapping) for item in (*shapes, common)):
        raise BaselineError(f"{where}: parameters is a table and shapes a list of tables", hint="see docs/baselines.md")
    folder = path.parent
    cases = [
        Case(
            kernel=_from(folder, entry["source"]),
            target=entry.get("target", target),
            parameters={**common, **shape},
            symbols=entry.get("symbols", {}),
            reference=_from(folder, entry.get("reference", "")),
            inputs=_from(folder, entry.get("inputs", "")),
            tolerance=entry.get("tolerance"),
            flop_formula=str(entry.get("flops", "")),
        )
        for shape in shapes
    ]
    for case in cases:
        _ = case.operations  # a mistake in it is said now, not after an hour
    return cases


def _is(value: Any, wanted: str) -> bool:
    """Whether an entry of a suite is of the kind that `_KINDS` says."""
    if wanted == "a text":
        return isinstance(value, str)
    if wanted == "a table of extents":
        return isinstance(value, Mapping) and all(type(extent) is int and extent >= 0 for extent in value.values())
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _from(folder: Path, spec: str) -> str:
    """A spec whose file is looked for beside the suite, as it is called from the current folder."""
    file, colon, name = spec.rpartition(":")
    if not file.endswith(".py"):
        return spec
    return f"{Path(os.path.relpath(folder / file)).as_posix()}{colon}{name}"
