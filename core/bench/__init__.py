"""`tilehal bench`: the operators of `core.ops` side by side, in one run, with what a user would pick instead."""
