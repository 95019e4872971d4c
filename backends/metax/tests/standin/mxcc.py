"""Stands in for mxcc: checks how it is called and "compiles" with the simulator's compiler.

The image it writes is what the stand-in runtime library loads.
"""

import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        sys.stdout.write("mxcc version 1.0.0 (stand-in)" + "\n")
        return 0
    source = Path(arguments[-1])
    text = source.read_text()
    wanted = ["-x", "maca", "-device-obj", "-O3", "-std=c++17", "-D__FAST_HALF_CVT__", "-fno-strict-aliasing"]
    missing = [flag for flag in wanted if flag not in arguments]
    includes = [Path(word[2:]) for word in arguments if word.startswith("-I")]
    if missing or not any(word.startswith("--offload-arch=xcore") for word in arguments):
        sys.stderr.write(f"called without {missing or '--offload-arch'}" + "\n")
        return 1
    if not any((folder / "tilehal/maca/platform.h").is_file() for folder in includes):
        sys.stderr.write("fatal error: 'tilehal/maca/platform.h' file not found" + "\n")
        return 1
    if "#error" in text or "-Drefuse" in arguments:
        sys.stderr.write(f"{source}:1:2: error: refused as asked" + "\n")
        return 1

    import core
    from backends.metax.simulator import shim_folder
    from core.codegen.simt.simulator.build import build_library
    from core.codegen.simt.simulator.rewrite import rewrite

    entry_points = [line.split("(")[1].split(") ")[1] for line in text.splitlines() if line.startswith('extern "C"')]
    library = build_library(
        rewrite(text, entry_points).source,
        core.chip("metax:c500"),
        include_folders=(shim_folder(), *includes),
        checked=False,
    )
    Path(arguments[arguments.index("-o") + 1]).write_bytes(b"STANDIN\n" + str(library).encode() + b"\0")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
