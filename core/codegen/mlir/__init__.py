"""Tile MLIR family: the tile-level view to linalg, memref, scf, arith and math, one module per launch.

For chips whose compiler takes whole tiles and plans memory, pipelines and synchronisation itself. A vendor gives a
:class:`TileDialect`: its argument convention, attributes, and the few operations it spells its own way.
"""

from core.codegen.mlir.builder import Builder, Value
from core.codegen.mlir.dialect import Argument, FunctionFacts, TileDialect
from core.codegen.mlir.lowering import SEPARATOR, lower
from core.codegen.mlir.module import TileModule, lower_launch
from core.codegen.mlir.ops import matmul
from core.codegen.mlir.types import MemRef, Scalar, Tensor

__all__ = [
    "SEPARATOR",
    "Argument",
    "Builder",
    "FunctionFacts",
    "MemRef",
    "Scalar",
    "Tensor",
    "TileDialect",
    "TileModule",
    "Value",
    "lower",
    "lower_launch",
    "matmul",
]
