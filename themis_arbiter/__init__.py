"""Themis arbiter: a finish-time-fair GPU scheduler that grants leases through auctions.

The package follows one idea: a deterministic core decides, a thin shell does. See docs/adr/0001-deterministic-core.md.
"""


def __getattr__(name: str) -> str:
    """`__version__`, looked up when asked for: tasks import this package in every container and need to start fast."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("themis-arbiter")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+uninstalled"
