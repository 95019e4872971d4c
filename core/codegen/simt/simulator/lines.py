"""Source lines of a watched kernel: the compiler's own line marks, turned into a table the simulator can search.

The kernel is compiled to assembly. After each call a label is put, and at the end a table of (label, line, whether
the line is of the kernel's file): a return address then tells the line, without a debugger's tools. Calls of memcpy,
memmove and memset go to versions that are watched.
"""

from __future__ import annotations

import re

_FILE = re.compile(r"\s*\.file\s+(\d+)\s+(?:\"[^\"]*\"\s+)?\"([^\"]*)\"")
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_CALL = re.compile(r"\s*(?:callq?|blr?)\s+\S")
_RENAMED = re.compile(r"\b(callq?|bl)(\s+)(memcpy|memmove|memset)\b")
_WATCHED = {"memcpy": "tilehal_sim_memcpy", "memmove": "tilehal_sim_memcpy", "memset": "tilehal_sim_memset"}


def add_line_table(assembly: str, kernel_file: str) -> str:
    """The assembly with labels after calls and the table `tilehal_sim_lines`.

    Args:
        kernel_file: name of the kernel's file, without folders.
    """
    kernel_files: set[str] = set()
    out: list[str] = []
    entries: list[tuple[int, int]] = []
    line, in_kernel = 0, 0
    for text in assembly.splitlines():
        if match := _LOC.match(text):
            line, in_kernel = int(match[2]), int(match[1] in kernel_files)
        elif match := _FILE.match(text):
            if match[2].rpartition("/")[2] == kernel_file:
                kernel_files.add(match[1])
        elif _CALL.match(text):
            out.append(_RENAMED.sub(lambda m: m[1] + m[2] + _WATCHED[m[3]], text))
            out.append(f".Ltilehal_site_{len(entries)}:")
            entries.append((line, in_kernel))
            continue
        out.append(text)
    out += ["\t.data", "\t.balign 8", "\t.globl tilehal_sim_lines", "\t.hidden tilehal_sim_lines", "tilehal_sim_lines:"]
    for index, (number, own) in enumerate(entries):
        out.append(f"\t.quad .Ltilehal_site_{index}\n\t.long {number}, {own}")
    out += ["\t.globl tilehal_sim_line_count", "\t.hidden tilehal_sim_line_count", "tilehal_sim_line_count:"]
    out.append(f"\t.quad {len(entries)}")
    return "\n".join(out) + "\n"
