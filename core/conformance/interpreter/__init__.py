"""A slow, obvious interpreter of the tile-level view, in NumPy: a second opinion on what a kernel means.

It follows docs/program.md line by line and shares no code with any lowering family. Memory that nobody wrote reads as
NaN (or -1), and the order of blocks and parallel iterations can be turned round, so that a kernel (or a family) that
relies on either gives itself away.
"""

from core.conformance.interpreter.machine import interpret

__all__ = ["interpret"]
