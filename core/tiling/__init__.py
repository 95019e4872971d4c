"""Tile parameters, tile-size rules and the choice between them."""

from core.tiling.constraints import whole_waves
from core.tiling.factory import KernelFactory, kernel
from core.tiling.parameters import TileParameter, stages, threads, tile
from core.tiling.rules import Candidate, CandidateSource, KernelShape, Rejection, TileRule, Tiles

__all__ = [
    "Candidate",
    "CandidateSource",
    "KernelFactory",
    "KernelShape",
    "Rejection",
    "TileParameter",
    "TileRule",
    "Tiles",
    "kernel",
    "stages",
    "threads",
    "tile",
    "whole_waves",
]
