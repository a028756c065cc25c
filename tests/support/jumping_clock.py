"""`themis serve` whose wall clock is off by the seconds that stand in a file: an admin, or NTP, sets it.

python -m tests.support.jumping_clock FILE
"""

import sys
import time
from pathlib import Path

from themis_arbiter.cli.main import main

if __name__ == "__main__":
    said, time_s, time_ns = Path(sys.argv[1]), time.time, time.time_ns
    time.time = lambda: time_s() + int(said.read_text(encoding="utf-8"))
    time.time_ns = lambda: time_ns() + int(said.read_text(encoding="utf-8")) * 1_000_000_000
    sys.argv = ["themis", "serve"]
    main()
