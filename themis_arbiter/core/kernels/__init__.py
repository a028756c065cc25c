"""Hot numeric loops: plain functions over flat numpy arrays, compiled ahead where numba is installed.

A kernel is written once. With numba it is machine code, kept in a cache on the disk (`build` fills it); without, or with
NUMBA_DISABLE_JIT=1, the same lines run as Python. Whole numbers below 2^63 and floats in a fixed order make both equal.
Modules here are imported by those who solve, when they first do: numba takes a good part of a second to import.
"""
