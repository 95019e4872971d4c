"""Kernels that the tests of the tuner measure on the CPU; some of their candidates misbehave on purpose."""

import functools
import os
import signal
import sys
import time

import tilelang.language as T
import torch

import core

WAYS = (
    "fine",
    "slow",
    "wrong",
    "does not build",
    "crashes while compiling",
    "hangs while compiling",
    "crashes while running",
    "hangs while running",
)
#: Besides, where there is a device whose context a fault spoils.
DEVICE_FAULT = "faults on the device"


@core.kernel(out=["B"])
def twice(M: int, *, block: int = core.tile("M"), threads: int = core.threads()):
    """B = 2 A."""

    @T.prim_func
    def main(A: T.Tensor((M,), "float32"), B: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=threads) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2.0

    return main


@core.kernel(out=["B"])
def planted(M: int, *, block: int = core.tile("M"), way: str = core.choice("way", *WAYS, DEVICE_FAULT)):
    """B = 2 A, as well as the candidate's `way` allows."""
    if _in_a_child():
        if way == "crashes while compiling":
            os.kill(os.getpid(), signal.SIGSEGV)
        if way == "hangs while compiling":
            time.sleep(3600)
        _let_it_crash()
    factor = 3.0 if way == "wrong" else 2.0
    # In two loops: TileLang counts each in 32 bits.
    rounds, times = {"slow": (1 << 14, 1), "hangs while running": (1 << 20, 1 << 20)}.get(way, (1, 1))
    if way == "does not build":
        raise ValueError("no kernel this way")

    @T.prim_func
    def main(A: T.Tensor((M,), "float32"), B: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            held = T.alloc_fragment((block,), "float32")
            for i in T.Parallel(block):
                held[i] = A[bx * block + i]
            for _ in T.serial(times):
                for _ in T.serial(rounds):
                    for i in T.Parallel(block):
                        held[i] = held[i] * 0.5 + A[bx * block + i]
            for i in T.Parallel(block):
                # Too little to matter, and not nothing: times 0 the loops would be left out.
                B[bx * block + i] = held[i] * 1e-20 + A[bx * block + i] * factor

    return main


def right(A):
    """The reference of both kernels."""
    return A * 2.0


def raising(A):
    """A reference with a fault of its own."""
    raise ValueError("no such thing")


def two_outputs(A):
    """A reference that returns too much."""
    return A, A


def cut_short(A):
    """A reference that returns too little."""
    return A[1:]


def listed(A):
    """A reference that returns no tensor."""
    return A.tolist()


def mistaken(A):
    """A reference of something else."""
    return A * 7.0


def _in_a_child() -> bool:
    """Whether a tuner's child runs this: the tuner itself must not crash while it ranks."""
    return "core.tuning.workers.worker" in sys.modules


@functools.cache
def _let_it_crash() -> None:
    """The CPU backend's code does not crash, so a call of the candidate that should is made to."""
    from core.runtime.kernel import Kernel

    usual = Kernel.__call__

    def call(self, *args, **kwargs):
        way = self.config.tiles.get("way")
        if way == "hangs while running" and args[0].device.type == "cpu":
            time.sleep(3600)  # rather than keep every core of the machine busy until it is found out
        if way == "crashes while running":
            os.kill(os.getpid(), signal.SIGSEGV)
        if way == DEVICE_FAULT:
            here = args[0].device
            torch.zeros(1, device=here)[torch.full((1,), 10**9, device=here)]
        return usual(self, *args, **kwargs)

    Kernel.__call__ = call
