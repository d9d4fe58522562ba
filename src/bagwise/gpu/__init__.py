"""Steps of the library on a CUDA device: the only package that knows CuPy, chosen by `backend`."""
