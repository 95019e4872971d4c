"""Compiling a simulated kernel: the machine, the chip's matrix instructions, the kernel; each cached by its content."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from core.codegen.host import find_cxx_compiler
from core.codegen.simt.simulator.lines import add_line_table
from core.codegen.simt.simulator.matrix import matrix_header, matrix_source, simulated_instructions
from core.compiler.toolchain import FoundProgram, run_tool, tool_version

if TYPE_CHECKING:
    from core.hardware import Chip

#: Changes when the meaning of what is cached changes.
_SCHEMA = "1"
KERNEL_FILE = "kernel.cpp"
_LIBRARY = "kernel.so"
_MATRIX_HEADER = "tilehal_sim_matrix.h"
_RUNTIME_UNITS = ("scheduler", "wave", "checker", "signals")
_TIMEOUT_S = 600.0

_COMMON = (
    *("-std=c++17", "-fPIC", "-fvisibility=hidden", "-march=native", "-pthread"),
    # Registers and shared memory are read as vectors of other types than they were written as.
    "-fno-strict-aliasing",
    # Integers wrap, products and sums are rounded one by one: what the kernel says, on every compiler.
    *("-fwrapv", "-ffp-contract=off", "-fno-math-errno"),
    *("-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-w"),
)
#: The runtime's own files use the standard library, which wants neither of these.
_RUNTIME = tuple(flag for flag in _COMMON if flag not in ("-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"))
_KERNEL_PLAIN = ("-O2",)
#: -fsanitize=thread makes the compiler call a function before each access; its library is not linked, ours answers.
#: Functions are not inlined, so that what a header does is traced to the kernel's line.
_KERNEL_CHECKED = (
    *("-O1", "-g1", "-DTILEHAL_SIM_CHECKED=1", "-fno-optimize-sibling-calls", "-fno-inline"),
    *("-fsanitize=thread", "-fsanitize=alignment", "-fno-sanitize-recover=alignment"),
)
_GCC = ("-fexcess-precision=16",)
#: Two barriers in two branches must stay two.
_GCC_CHECKED = ("--param", "tsan-distinguish-volatile=1", "-fno-tree-tail-merge", "-fno-crossjumping")
_CLANG = ("-Xclang", "-ffloat16-excess-precision=none")
_CLANG_CHECKED = (
    *("-mllvm", "-tsan-distinguish-volatile=1", "-mllvm", "-tsan-instrument-read-before-write=1"),
    *("-mllvm", "-tsan-instrument-func-entry-exit=1"),
)


def include_folder() -> Path:
    """Folder of the simulator's own headers (`tilehal_sim/*.h`), which a language's shim includes."""
    return Path(__file__).with_name("include")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler that builds simulated kernels."""

    program: FoundProgram
    version: str

    @property
    def is_clang(self) -> bool:
        """Clang, or zig, which is one."""
        return "clang" in self.version.lower() or "ziglang" in self.program.arguments

    def kernel_flags(self, checked: bool) -> tuple[str, ...]:
        """Flags for the kernel's own file."""
        rounding, watched = (_CLANG, _CLANG_CHECKED) if self.is_clang else (_GCC, _GCC_CHECKED)
        # Half precision in hardware rounds by itself; where it is emulated the compiler must be told to.
        vendor: tuple[str, ...] = rounding if platform.machine() in ("x86_64", "AMD64") else ()
        return (*_COMMON, *vendor, *((*_KERNEL_CHECKED, *watched) if checked else _KERNEL_PLAIN))


def find_compiler() -> Compiler:
    """The C++ compiler of this machine.

    Raises:
        ToolchainNotFound: there is none, with every place that was looked at.
    """
    program = find_cxx_compiler()
    arguments = () if program.arguments else ("--version",)
    return Compiler(program, tool_version(program, arguments or ("--version",)))


def build_library(
    source: str,
    chip: Chip,
    *,
    include_folders: Sequence[Path],
    checked: bool,
    flags: Sequence[str] = (),
    label: str = "kernel",
    verbose: bool = False,
) -> Path:
    """The shared library of a rewritten kernel, built or from the cache.

    Args:
        source: the kernel's file after :func:`core.codegen.simt.simulator.rewrite.rewrite`.
        chip: whose matrix instructions it may use.
        include_folders: of the language's shim and of whatever headers the source includes.
        checked: every memory access is watched.
        flags: further flags of the compiler.
        label: what `tilehal cache list` shows.

    Raises:
        ToolchainNotFound: no C++ compiler.
        BuildFailed: the compiler's message and command; the source stays on disk.
    """
    from core.compiler import cache

    compiler = find_compiler()
    folders = (include_folder(), *include_folders)
    runtime, matrix = _runtime(compiler, verbose), _matrix_unit(chip, compiler, verbose)
    command_flags = (*compiler.kernel_flags(checked), *flags)
    key = _key("kernel", compiler, source, *command_flags, runtime.key, matrix.key, *map(_folder_digest, folders))

    def make(directory: Path) -> None:
        file = directory / KERNEL_FILE
        file.write_text(source, encoding="utf-8")
        includes = [f"-I{folder}" for folder in (*folders, matrix.directory)]
        purpose = f"compile {label} for the simulator of {chip.target}"

        def tool(*words: str) -> None:
            run_tool(
                (*compiler.program.command, *words),
                cwd=directory,
                source=file,
                purpose=purpose,
                timeout_s=_TIMEOUT_S,
                verbose=verbose,
            )

        compiled = "kernel.s" if checked else "kernel.o"
        tool(*command_flags, *includes, "-S" if checked else "-c", KERNEL_FILE, "-o", compiled)
        if checked:
            assembly = directory / compiled
            assembly.write_text(add_line_table(assembly.read_text(encoding="utf-8"), KERNEL_FILE), encoding="utf-8")
        objects = (*runtime.paths, *matrix.paths)
        tool("-shared", "-fPIC", "-pthread", "-Wl,-s", "-Wl,-z,defs", compiled, *objects, "-o", _LIBRARY, "-lm")
        (directory / compiled).unlink()

    folder, _ = cache.default().folder(key, make, label=f"simulator of {label}{' (checked)' if checked else ''}")
    return folder / _LIBRARY


@dataclass(frozen=True, slots=True)
class _Objects:
    """Compiled files that kernels are linked with, in one folder of the cache."""

    key: str
    directory: Path
    names: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(str(self.directory / name) for name in self.names)


def _runtime(compiler: Compiler, verbose: bool) -> _Objects:
    """The simulated machine itself, the same for every chip."""
    folder = Path(__file__).with_name("runtime")
    key = _key("runtime", compiler, *_RUNTIME, _folder_digest(folder), _folder_digest(include_folder()))
    units = {f"{unit}.o": folder / f"{unit}.cpp" for unit in _RUNTIME_UNITS}
    return _objects(key, compiler, units, {}, "the simulated machine", verbose)


def _matrix_unit(chip: Chip, compiler: Compiler, verbose: bool) -> _Objects:
    """The chip's matrix instructions, and the header that declares them."""
    instructions = simulated_instructions(chip)
    texts = {"matrix.cpp": matrix_source(chip, instructions), _MATRIX_HEADER: matrix_header(instructions)}
    key = _key("matrix", compiler, *_RUNTIME, *texts.values(), _folder_digest(include_folder()))
    label = f"simulated matrix instructions of {chip.target}"
    return _objects(key, compiler, {"matrix.o": Path("matrix.cpp")}, texts, label, verbose)


def _objects(
    key: str, compiler: Compiler, units: Mapping[str, Path], texts: Mapping[str, str], label: str, verbose: bool
) -> _Objects:
    from core.compiler import cache

    def make(directory: Path) -> None:
        for name, text in texts.items():
            (directory / name).write_text(text, encoding="utf-8")
        for name, unit in units.items():
            run_tool(
                (*compiler.program.command, *_RUNTIME, "-O3", f"-I{include_folder()}", "-c", unit, "-o", name),
                cwd=directory,
                purpose=f"compile {label}",
                timeout_s=_TIMEOUT_S,
                verbose=verbose,
            )

    folder, _ = cache.default().folder(key, make, label=label)
    return _Objects(key, folder, tuple(units))


def _key(kind: str, compiler: Compiler, *texts: str) -> str:
    digest = hashlib.sha256()
    words = (_SCHEMA, kind, compiler.version, *compiler.program.command, _processor_features(), *texts)
    for text in words:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


@lru_cache(maxsize=64)
def _folder_digest(folder: Path) -> str:
    """Digest of the files in a folder of headers, by name and content; read once a process."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _processor_features() -> str:
    """What -march=native depends on: a library built on another machine may not run here."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.node()}"
    wanted = ("flags", "features", "model name", "cpu part")
    lines = [line for line in text.splitlines() if line.partition(":")[0].strip().lower() in wanted]
    return "\n".join(dict.fromkeys(lines))
