"""Running a compiled kernel: signature, argument binding, the kernel object."""
