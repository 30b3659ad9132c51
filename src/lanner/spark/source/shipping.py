"""What a worker of Spark reports if its Python has no Lanner.

Spark pickles the data source for the tasks that read, and the writer for those that write. A pickle
contains the names of classes, so a worker without Lanner would report only that it has no module
of that name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle

__all__ = ["Shipped"]


class Shipped:
    """Base class of what Spark pickles, with cloudpickle, for its workers."""

    def __reduce__(self) -> tuple[Callable[[bytes], object], tuple[bytes]]:
        content = cloudpickle.dumps((type(self), self.__dict__))  # type: ignore[no-untyped-call] # it has no types
        return _unpacker(), (content,)


def _unpacker() -> Callable[[bytes], object]:
    # A function inside a function is pickled with its code, so a Python without Lanner can run it.
    def unpack(content: bytes) -> object:
        import pickle

        try:
            kind, state = pickle.loads(content)  # noqa: S301 (as all that Spark sends to its workers)
        except ImportError as error:
            import sys

            raise ImportError(
                f"a worker of Spark runs {sys.executable}, which has no Lanner ({error}): install lanner[spark] there, "
                "or set PYSPARK_PYTHON to a Python that has it on every worker"
            ) from None
        made: Any = object.__new__(kind)
        made.__dict__.update(state)
        return made

    return unpack
