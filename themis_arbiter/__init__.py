"""Themis arbiter: a finish-time-fair GPU scheduler that grants leases through auctions.

The package follows one idea: a deterministic core decides, a thin shell does. See docs/adr/0001-deterministic-core.md.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("themis-arbiter")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+uninstalled"

__all__ = ["__version__"]
