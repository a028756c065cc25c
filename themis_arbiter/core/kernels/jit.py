"""Kernels as Python and as machine code: one source, two sets of functions.

`kernel` leaves a function as it is and writes it down. `compiled` makes a twin of everything written down, in copies of its
modules' names where twins call twins, and hands that to numba; neither fast-math nor threads, both would change results.
Compiling takes a minute, so it is done by `build` only; `loaded` takes what `build` left on the disk, or nothing.

numba finds machine code on the disk by the file of the function that Python calls, and would not notice a change of what that
calls in other files. So the code of all kernels and the constants that they read make a version, which `entry` puts where
numba's index sees it.
"""

from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar

import numpy as np

from themis_arbiter.core.kernels.layout import Ints

Function = TypeVar("Function", bound=Callable[..., Any])

_KERNELS: Final[list[FunctionType]] = []


def kernel(function: Function) -> Function:
    """Write a function down as a kernel; kernels call kernels, numpy, and nothing else."""
    assert isinstance(function, FunctionType)
    _KERNELS.append(function)
    return function


def entry(make: Callable[[int], Function]) -> Function:
    """What `make` makes of the version of all kernels that it calls: the kernel that Python calls, by arrays and numbers."""
    found: list[FunctionType] = []
    for code in make.__code__.co_consts:
        if isinstance(code, CodeType):
            _reach(code, make.__globals__, found)
    return kernel(make(_version(found)))


def _reach(code: CodeType, names: dict[str, Any], found: list[FunctionType]) -> None:
    """Add the kernels that this code calls, and those that they call."""
    for name in code.co_names:
        value = names.get(name)
        if isinstance(value, FunctionType) and value in _KERNELS and value not in found:
            found.append(value)
            _reach(value.__code__, value.__globals__, found)


def _version(kernels: list[FunctionType]) -> int:
    seen = blake2b(digest_size=7)
    for function in kernels:
        code = function.__code__
        named = [(name, function.__globals__.get(name)) for name in code.co_names]
        constants = [(name, value) for name, value in named if isinstance(value, int | float | tuple | str)]
        seen.update(repr((code.co_name, code.co_code, code.co_consts, code.co_names, constants)).encode())
    return int.from_bytes(seen.digest(), "big") + 1


@kernel
def zeros(count: int) -> Ints:
    """So many zeros: an array where compiled, a list, which Python reads faster, where not."""
    return [0] * count  # type: ignore[return-value]


@kernel
def copy(target: Ints, source: Ints, first: int) -> None:
    """All of `target` becomes what `source` has from `first` on: a slice in Python, which compiled would be copied twice."""
    target[:] = source[first : first + len(target)]


def _array_of_zeros(count: int) -> Ints:
    return np.zeros(count, dtype=np.int64)


def _copy_arrays(target: Ints, source: Ints, first: int) -> None:
    if first == 0:
        for k in range(len(target)):
            target[k] = source[k]
    else:
        for k in range(len(target)):
            target[k] = source[first + k]


# Of kernels that arrays need another of.
_CODES: Final[dict[Any, CodeType]] = {zeros: _array_of_zeros.__code__, copy: _copy_arrays.__code__}


def compiled(function: FunctionType) -> Any | None:
    """The twin of a kernel that `entry` made, not compiled yet; None without numba or with NUMBA_DISABLE_JIT=1."""
    try:
        from numba import config, njit
    except ImportError:
        return None
    if config.DISABLE_JIT:
        return None
    names: dict[int, dict[str, Any]] = {}  # by module: its names, kernels replaced by twins
    twins: dict[FunctionType, Any] = {}
    for one in _KERNELS:
        module = names.setdefault(id(one.__globals__), dict(one.__globals__))
        twin = FunctionType(_CODES.get(one, one.__code__), module, one.__name__, one.__defaults__, one.__closure__)
        if one is function:
            twins[one] = njit(cache=True)(twin)
        else:
            twins[one] = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=_makes_arrays(one))(twin)
    for module in names.values():
        for name, value in module.items():
            if isinstance(value, FunctionType) and value in twins:
                module[name] = twins[value]
    return twins[function]


def _makes_arrays(one: FunctionType) -> bool:
    """Whether a kernel needs arrays counted. The others only borrow theirs; counting these took a third of an auction."""
    found = [one]
    _reach(one.__code__, one.__globals__, found)
    return zeros in found


@cache
def runner(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[[Sequence[int] | Ints], Ints]]:
    """What runs a kernel that `entry` made, and makes arrays for it: machine code where it is on the disk, else Python."""
    assert isinstance(function, FunctionType)
    machine_code = _loaded(function)
    return (function, list) if machine_code is None else (machine_code, _array)  # type: ignore[return-value]


def is_compiled(function: Callable[..., Any]) -> bool:
    """Load now what the first call would load; whether it is machine code."""
    return runner(function)[1] is _array


def _array(values: Sequence[int] | Ints) -> Ints:
    return np.array(values, dtype=np.int64)


def _loaded(function: FunctionType) -> Any | None:
    """The twin of a kernel that `entry` made, if its machine code is on the disk."""
    twin = compiled(function)
    if twin is None:
        return None
    signature = _signature(function)
    # numba offers no other way to ask whether it would have to compile.
    if twin._cache.load_overload(signature, twin.targetctx) is None:
        return None
    twin.compile(signature)
    return twin


def build(function: Callable[..., Any]) -> bool:
    """Put the machine code of a kernel that `entry` made on the disk where it is not yet; whether it can be had."""
    assert isinstance(function, FunctionType)
    twin = compiled(function)
    if twin is None:
        return False
    twin.compile(_signature(function))
    return True


def _signature(function: FunctionType) -> tuple[Any, ...]:
    """By what a kernel says of its arguments: whole numbers and arrays of them."""
    from numba import int64

    kinds = [kind for name, kind in function.__annotations__.items() if name != "return"]
    return tuple(int64 if kind is int else int64[::1] for kind in kinds)
