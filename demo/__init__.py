"""The main job on real input: three kernels, one source each, for every target that can compile them."""
