"""Numbers as people write them in files and on a command line, and nothing else that Python would take for one."""

import math
import re
from typing import Final

# ASCII digits only: no 1_000, no digits of other scripts, no nan, no inf.
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")


def finite(text: str) -> float:
    """The finite number that `text` is. Errors: ValueError with the reason."""
    short = text.strip()
    if _NUMBER.fullmatch(short) is None:
        try:
            is_number = not math.isfinite(float(short))
        except ValueError:
            is_number = False
        raise ValueError("is not finite" if is_number else "is not a number")
    value = float(short)
    if not math.isfinite(value):
        raise ValueError("is not finite")
    return value


def whole(text: str) -> int:
    """The whole number that `text` is. Errors: ValueError."""
    if _WHOLE.fullmatch(text.strip()) is None:
        raise ValueError("is not a whole number")
    return int(text)
