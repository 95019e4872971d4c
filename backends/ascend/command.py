"""Command lines of Huawei's compiler."""

from __future__ import annotations

from pathlib import Path

from backends.ascend.settings import Settings
from backends.ascend.toolchain import is_a5
from core.compiler import FoundProgram
from core.hardware import Chip

#: What the compiler leaves behind in the folder given as --save-temps: the module it hands to hivmc.
FINAL_MODULE = "module.hivm.opt.mlir"

#: Stands in for hivmc where CANN is not installed: the module is the result, and the 950 compiler, which otherwise runs
#: all its fallbacks when it finds no hivmc, stops after the first.
_STAND_IN = """#!/bin/sh
for word in "$@"; do
    [ "$word" = --version ] && { echo "stand-in for hivmc, which is not installed"; exit 0; }
done
input=""; output=""
while [ $# -gt 0 ]; do
    case "$1" in
        -o) output=$2; shift ;;
        *.mlir) input=$1 ;;
    esac
    shift
done
cp "$input" "$output"
"""


def compile_command(
    compiler: FoundProgram, chip: Chip, source: str, output: str, settings: Settings, *, multi_buffer: bool
) -> list[str]:
    """The command that compiles `source` in the folder it is run in."""
    flags = [
        f"--target={chip.codegen['target']}",
        f"--enable-auto-multi-buffer={_text(multi_buffer)}",
        f"--enable-auto-bind-sub-block={_text(settings.sub_block)}",
        "--enable-hfusion-compile=true",
        "--enable-triton-kernel-compile=true",
    ]
    if is_a5(chip):
        flags += ["--disable-ffts", "--enable-print-memory-allocated-size"]
    else:
        flags += ["--enable-hivm-compile=true"]
    if settings.sync_solver:
        flags.append("--enable-hivm-graph-sync-solver=true")
    return [*compiler.command, source, *flags, "--save-temps=.", "-o", output]


def write_stand_in(folder: Path, chip: Chip) -> None:
    """Puts a stand-in for the chip's hivmc into a folder that goes in front of PATH."""
    path = folder / ("hivmc-a5" if is_a5(chip) else "hivmc")
    path.write_text(_STAND_IN, encoding="utf-8")
    path.chmod(0o755)


def _text(flag: bool) -> str:
    return "true" if flag else "false"
