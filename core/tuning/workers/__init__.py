"""The processes that compile and measure candidates.

`jobs` is what is asked and answered. A site (`sites`) is where that happens: children of this process, an executor, a
dask cluster; `tasks` are what an executor runs. `children` starts child processes and outlives their crashes, `worker`
is such a child, which does jobs by way of `compiling` and `running`. `shipping` brings a kernel to another process.
"""
