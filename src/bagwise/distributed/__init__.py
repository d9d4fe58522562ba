"""Sums over samples that lie on many machines, or in chunks on a disk: the statistics of merging over Dask collections.

Data come as a Dask array (dense chunks, or chunks that are SciPy sparse matrices) or as a list of `dask.delayed`
chunks. Each function builds a graph and returns a `dask.delayed.Delayed`, whose ``.compute()`` gives the result. Every
chunk becomes one small result; these are added in pairs of neighbours, as a tree in the order of the chunks. So sums
are made in the same order on any number of workers, whichever of them is first, and also if one of them is lost on the
way and its chunks are read again.

Errors in workers come back as the `BagwiseError` they are, and name the chunk.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
