"""Parts of a job on a Dask cluster, and the sums that merging needs, over Dask collections.

``fit_model(source, client=client)`` runs the steps of a fit by the executors of this package. For the sums, data are a
Dask array (dense chunks, or chunks that are SciPy sparse matrices) or a list of `dask.delayed` chunks. Each function
builds a graph and returns a `dask.delayed.Delayed`, whose ``.compute()`` gives the result. The results of chunks are
added in pairs of neighbours, as a tree in the order of the chunks, so that the sums do not depend on the workers:
neither on their number, nor on the order in which they finish, nor on lost workers.

Errors in workers are raised as the `BagwiseError` they are, and name the chunk.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
