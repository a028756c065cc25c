"""Logging as it was, after a test that configures it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

CONFIGURED = ("", "themis", "themis_arbiter", "yarn_bridge", "themis_arbiter.audit")  # loggers that have a level then


@contextmanager
def logging_kept() -> Iterator[None]:
    """What is configured inside is as before afterwards."""
    root = logging.getLogger()
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in CONFIGURED}
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
