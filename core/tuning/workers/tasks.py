"""What an executor is given to do, on this machine or another: each task has a child process do the dangerous part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.tuning.environment import environment_here
from core.tuning.locks import hold_device
from core.tuning.workers.children import Children, shared_children
from core.tuning.workers.jobs import CompileJob, CrossCheckJob, FinalJob, MeasureJob, Reply

if TYPE_CHECKING:
    from core.hardware import Chip


def compile_task(job: CompileJob, host_is_device: bool = False, children: Children | None = None) -> Reply:
    """Compiles a candidate. Where the CPU is what is tuned, not while something is being timed on it.

    Args:
        children: who does it; children of this process, whichever that is, when None.
    """
    workers = children or shared_children()
    if not host_is_device:
        return workers.run(job)
    with hold_device("cpu", shared=True):
        return workers.run(job)


def measure_task(
    job: MeasureJob | CrossCheckJob | FinalJob, compiled: Reply | None = None, children: Children | None = None
) -> Reply:
    """Runs candidates with the device to itself, and says where.

    Args:
        compiled: what compiling it elsewhere gave; None where it lies in a cache this process sees.
        children: as for :func:`compile_task`.
    """
    if isinstance(job, MeasureJob) and compiled is not None:
        job = replace(job, artifact=compiled.artifact)
    with hold_device(job.conditions.device):
        reply = (children or shared_children()).run(job, problem=job.conditions.problem)
    return replace(reply, environment=environment_here(job.subject.chip))


def torch_device(chip: Chip) -> str:
    """The torch device of the process's machine that is this chip. Raises DeviceUnavailable."""
    from core.target import resolve

    return resolve(chip).require_torch_device()
