"""CUDA sources of the folder `cu`, compiled at the first call; CuPy keeps the result on disk."""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files
from typing import Any

__all__ = ["Source"]

_THREADS = 128


class Source:
    """The kernels of a file, by the names of functions, or of instances of templates."""

    def __init__(
        self, name: str, *instances: str, options: tuple[str, ...] = ("-std=c++17",), cooperative: bool = False
    ) -> None:
        self._name, self._instances, self._options, self._cooperative = name, instances, options, cooperative

    @cached_property
    def _module(self) -> Any:
        import cupy

        code = (files("bagwise.gpu") / "cu" / f"{self._name}.cu").read_text("utf-8")
        return cupy.RawModule(
            code=code,
            options=self._options,
            name_expressions=self._instances or None,
            enable_cooperative_groups=self._cooperative,
        )

    def function(self, name: str) -> Any:
        """Return a kernel, to be called with a grid, a block and arguments."""
        return self._module.get_function(name)

    def launch(self, name: str, n_threads: int, *arguments: Any) -> None:
        """Run a kernel by so many threads, or a few more."""
        if n_threads:
            self.function(name)((-(-n_threads // _THREADS),), (_THREADS,), arguments)
