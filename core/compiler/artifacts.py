"""What the stages of a compilation hand on: `CompileOptions`, `LoweredKernel`, `BuiltKernel`, `Export`.

Both kernels are plain data: they go to the cache and come back, in another process, byte for byte. Nothing in them
refers to TVM or torch objects.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from core.errors import KernelError
from core.runtime.signature import Signature

Evidence = Literal["device", "vendor compiler", "simulated", "source only"]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Everything that can change the generated code besides the kernel and the chip, which is in the cache key.

    Attributes:
        pass_configs: tilelang pass configuration, as `tilelang.compile` takes it; keys are their string values.
        compile_flags: extra flags for the native compiler.
        fast_math: allow approximate maths and, on chips that have it, TF32 for float32 matrix products.
        backend: options a backend documents (`multi_buffer=False` on Ascend, ...).
        verbose: print the compilers' commands and messages; not part of the key.
        timeout_s: seconds that the native compiler may take (`options={"timeout_s": ...}`, whatever the backend); its
            backend's usual limit when None. Not part of the key.
    """

    pass_configs: Mapping[str, Any] = field(default_factory=dict)
    compile_flags: tuple[str, ...] = ()
    fast_math: bool = False
    backend: Mapping[str, Any] = field(default_factory=dict)
    verbose: bool = field(default=False, compare=False)
    timeout_s: float | None = field(default=None, compare=False)

    @property
    def given(self) -> dict[str, Any]:
        """What `options=` was."""
        return {**self.backend, **({} if self.timeout_s is None else {"timeout_s": self.timeout_s})}

    def check_backend(self, vendor: str, known: Iterable[str]) -> None:
        """Refuses an option that a backend does not have: a misspelt one would change nothing, and nobody would know.

        Raises:
            KernelError: naming it and those there are.
        """
        there_are = sorted(known)
        for name in self.backend:
            if name not in there_are:
                near = difflib.get_close_matches(str(name), there_are, n=1)
                raise KernelError(
                    f"the {vendor} backend has no option {name!r}",
                    hint=f"did you mean {near[0]!r}?"
                    if near
                    else f"its options are {', '.join(there_are) or 'none'}; timeout_s is every backend's",
                )


@dataclass(frozen=True, slots=True)
class Resources:
    """Resource figures of a kernel. None means not known (yet), never zero.

    Attributes:
        memory_bytes: bytes per block in each memory space of the chip, by the space's name.
        static_shared_bytes, dynamic_shared_bytes: the split the runtime sees, where it has one.
        threads: threads per block really launched.
        registers_per_thread, spill_store_bytes, spill_load_bytes, stack_bytes: per thread, from the native compiler.
        workspace_bytes: global scratch memory for the whole launch.
        flops: floating-point operations of one call (a multiply-add counts two).
        bytes_read, bytes_written: global memory traffic of one call with every tile fetched as the kernel says.
    """

    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    threads: int | None = None
    registers_per_thread: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    workspace_bytes: int | None = None
    flops: float | None = None
    bytes_read: float | None = None
    bytes_written: float | None = None

    @property
    def arithmetic_intensity(self) -> float | None:
        """Floating-point operations per byte of global memory traffic; None when unknown or nothing is moved."""
        if self.flops is None or self.bytes_read is None or self.bytes_written is None:
            return None
        moved = self.bytes_read + self.bytes_written
        return self.flops / moved if moved else None


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """A kernel as native source, not yet compiled by the vendor's toolchain.

    Attributes:
        target: the chip it is for (`cuda:h200`).
        route: lowering family and its variant, e.g. `tilelang-native`, `cpp`, `tile-mlir`, `simt-wave`.
        language: of `source`: `cuda`, `c++`, `mlir`, `maca`.
        source: the whole native source file.
        entry_points: names of the functions to launch, in launch order.
        signature: the kernel's parameters (order, dtypes, shapes, outputs) and symbolic dimensions.
        grid: per launch, the extents of the grid as expressions over the signature's symbols and scalars.
        block: per launch, threads (x, y, z).
        resources: what is known before building.
        rewrites: changes made to the kernel's meaning-preserving form (legalisation) or to the source, one line each.
        attachments: extra files the build needs, by name.
        metadata: JSON-able facts for the same backend's build and launch hooks.
    """

    target: str
    route: str
    language: str
    source: str
    entry_points: tuple[str, ...]
    signature: Signature
    grid: tuple[tuple[str, ...], ...] = ()
    block: tuple[tuple[int, int, int], ...] = ()
    resources: Resources = Resources()
    rewrites: tuple[str, ...] = ()
    attachments: Mapping[str, bytes] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    evidence: Evidence = "source only"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The native compiler that built a kernel: `version` as it prints it, `command` as it was called."""

    name: str
    version: str
    path: str = ""
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """A kernel compiled by its toolchain.

    `tilehal_build` writes its files into `BuildRequest.directory` and names them in `files` (role -> file name); the
    core then moves the folder into the cache and sets `directory`. Roles in use: `library` (a shared object the
    launcher loads), `binary` (the device image: cubin, mcbin, ELF), `module` (an intermediate module).
    """

    lowered: LoweredKernel
    toolchain: Toolchain
    files: Mapping[str, str]
    directory: Path
    resources: Resources
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def path(self, role: str) -> Path:
        """Path of the file with this role."""
        return self.directory / self.files[role]


@dataclass(frozen=True, slots=True)
class Export:
    """How a kernel is launched from the folder that `kernel.export()` writes.

    Attributes:
        launch: the metadata's `launch`, JSON-able. Its `kind` names the launch; `core.runtime.load_exported` runs
            those of `core.codegen.exports`, any other goes to the vendor's `tilehal_load`, or is for the loader in C.
        device_type: torch's name of the device that the kernel's tensors are on (`cuda`, `cpu`).
        binary_role: which of :attr:`BuiltKernel.files` is launched.
        suffix, source_suffix: of the names of the binary and of the native source in the folder (`.cubin`, `.cu`).
        interface: (title, the binary's file name, its content) -> a C header, and a C source that includes it, loads
            the binary from the folder and launches it (docs/export.md has the four functions). `title` is a line for
            both. It may raise UnsupportedOp.
    """

    launch: Mapping[str, Any]
    device_type: str
    binary_role: str
    suffix: str
    source_suffix: str
    interface: Callable[[str, str, bytes], tuple[str, str]]
