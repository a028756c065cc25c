"""Compile all kernels and keep them on the disk: `python -m themis_arbiter.core.kernels.build`, a minute's work.

`make setup` runs it. Nothing else compiles, so no round ever waits for a compiler: where there is no machine code, kernels run
as Python, slower and to the same results.
"""

from types import FunctionType

from themis_arbiter.core.auction.solver import NUMBERS, TABLES
from themis_arbiter.core.kernels.jit import build
from themis_arbiter.core.kernels.search import run

if __name__ == "__main__":
    assert isinstance(run, FunctionType)
    is_built = build(run, TABLES, NUMBERS)
    print("kernels: compiled" if is_built else "kernels: numba is not here or switched off; they run as Python")
