"""Compile all kernels and keep them on the disk: `python -m themis_arbiter.core.kernels.build`, a minute's work.

`make setup` runs it. Nothing else compiles, so no round ever waits for a compiler: where there is no machine code, kernels run
as Python, slower and to the same results.
"""

from themis_arbiter.core.kernels.flowing import cheapest_flow
from themis_arbiter.core.kernels.jit import build
from themis_arbiter.core.kernels.search import run

if __name__ == "__main__":
    are_built = [build(one) for one in (run, cheapest_flow)]
    print("kernels: compiled" if all(are_built) else "kernels: numba is not here or switched off; they run as Python")
