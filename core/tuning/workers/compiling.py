"""Compiling a candidate in a child process, and handing what came out to a process that sees another cache."""

from __future__ import annotations

import platform
import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import ToolchainNotFound
from core.tiling import Value
from core.tuning.workers.jobs import Artifact, CompileJob, Reply, Subject, Symbol
from core.tuning.workers.shipping import Parcel, unpack

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.runtime.kernel import Kernel

#: Received factories and functions by parcel: one object each, so that traces and fingerprints are made once.
_unpacked: dict[Parcel | bytes, Any] = {}


def received(parcel: Parcel) -> Any:
    """What a parcel holds, unpacked once."""
    key = parcel.content or repr((parcel.how, parcel.where, parcel.attribute)).encode()
    if key not in _unpacked:
        _unpacked[key] = unpack(parcel)
    return _unpacked[key]


def lowered(subject: Subject, tiles: Mapping[str, Any], *, target: str | None = None) -> Kernel:
    """A candidate as native source, for the subject's chip or, with the same maths, for another target.

    Raises as :func:`core.compile`.
    """
    from core.compiler.driver import compile as compile_kernel

    options = subject.options
    arguments: dict[str, Any] = {name: _argument(value) for name, value in subject.arguments.items()}
    return compile_kernel(
        received(subject.factory),
        target=target or subject.chip,
        pass_configs=options.pass_configs,
        compile_flags=() if target else options.compile_flags,
        fast_math=options.fast_math,
        options=None if target else options.given,
        build=False,
        **arguments,
        **dict(tiles),
    )


def built(subject: Subject, tiles: Mapping[str, Value], *, target: str | None = None) -> Kernel:
    """The same, with its binary. Raises as :func:`core.compile`, and ToolchainNotFound where there is no compiler."""
    kernel = lowered(subject, tiles, target=target)
    kernel.build()
    return kernel


def compile_candidate(job: CompileJob) -> Reply:
    """Compiles into the cache. Without a compiler, a candidate that is to be shipped is lowered only."""
    started = time.perf_counter()
    kernel = lowered(job.subject, job.tiles)
    try:
        if not job.ship or _is_described_here(job.subject.chip):
            kernel.build()
    except ToolchainNotFound:
        if not job.ship:
            raise
    seconds = time.perf_counter() - started
    fresh = not (kernel.provenance.source_cached and kernel.provenance.binary_cached)
    return Reply("ok", compile_s=seconds if fresh else None, artifact=_artifact(kernel) if job.ship else None)


def with_artifact(subject: Subject, tiles: Mapping[str, Value], artifact: Artifact | None) -> Kernel:
    """The candidate as it was compiled elsewhere, or compiled here where that was by other code or not at all."""
    from core.compiler.cache import default

    if artifact is None:
        return built(subject, tiles)
    default().lowered(artifact.key, lambda: artifact.lowered)
    kernel = lowered(subject, tiles)
    fits = artifact.machine == platform.machine() and kernel.provenance.cache_key == artifact.key
    if artifact.built is None or not fits:
        kernel.build()
        return kernel
    folder = Path(tempfile.mkdtemp(prefix="tilehal-tuned-"))
    weakref.finalize(kernel, shutil.rmtree, folder, ignore_errors=True)
    for name, content in artifact.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    kernel.adopt(replace(artifact.built, lowered=kernel.lowered, directory=folder))
    return kernel


def _artifact(kernel: Kernel) -> Artifact:
    key = kernel.provenance.cache_key
    if kernel.provenance.toolchain is None:
        return Artifact(key, kernel.lowered)
    made = kernel.build()
    found = (path for path in sorted(made.directory.rglob("*")) if path.is_file())
    files = {str(path.relative_to(made.directory)): path.read_bytes() for path in found}
    return Artifact(key, kernel.lowered, made, files, platform.machine())


def _is_described_here(chip: Chip) -> bool:
    """Whether this machine knows the chip by the same figures. A CPU's compiler builds for the CPU it runs on."""
    from core.target import resolve

    return resolve(chip.target).chip.model_dump_for_fingerprint() == chip.model_dump_for_fingerprint()


def _argument(value: Any) -> Any:
    if not isinstance(value, Symbol):
        return value
    import tilelang.language as T

    return T.dynamic(value.name, value.dtype)
