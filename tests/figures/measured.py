"""What the paper measured (mechanism.md, section 4), as series to draw and to order systems by."""

from collections.abc import Mapping
from typing import Final

Series = Mapping[str, float]

# Maximum rho by system: figures 9 and 10.
MAX_RHO: Final[Mapping[str, Series]] = {
    "w1": {"themis": 1.33, "srsf": 1.80, "srtf": 1.99, "gandiva": 2.49, "tiresias": 2.58, "slaq": 3.92, "optimus": 3.98},
    "w2": {"themis": 2.15, "srsf": 2.35, "gandiva": 2.83, "optimus": 3.19, "slaq": 3.76, "srtf": 3.98, "tiresias": 4.27},
}
# Figures 12 and 13, both of workload 2.
GPU_HOURS: Final[Series] = {
    "themis": 410,
    "optimus": 520,
    "gandiva": 590,
    "tiresias": 610,
    "srtf": 720,
    "srsf": 730,
    "slaq": 1360,
}
BAD_PLACES: Final[Series] = {  # per cent of allocations with a placement score below 1
    "themis": 0.2,
    "gandiva": 8.5,
    "optimus": 9.4,
    "tiresias": 19,
    "slaq": 32,
    "srsf": 42,
    "srtf": 48,
}
# Figure 14: maximum rho at one, two and four times the contention.
CONTENTION: Final[Mapping[str, Series]] = {
    "themis": {"1x": 1.22, "2x": 1.34, "4x": 1.28},
    "srsf": {"1x": 1.76, "2x": 1.92, "4x": 2.13},
    "srtf": {"1x": 1.88, "2x": 2.07, "4x": 2.22},
    "gandiva": {"1x": 2.43, "2x": 3.16, "4x": 3.78},
    "tiresias": {"1x": 2.45, "2x": 3.14, "4x": 4.91},
    "slaq": {"1x": 3.79, "2x": 5.64, "4x": 6.94},
    "optimus": {"1x": 3.85, "2x": 5.23, "4x": 6.29},
}
# Figure 15: maximum rho by per cent of network-intensive apps.
NETWORK: Final[Mapping[str, Series]] = {
    "themis": {"0": 1.13, "20": 1.14, "40": 1.43, "60": 1.58, "80": 1.35, "100": 1.24},
    "tiresias": {"0": 1.13, "20": 1.77, "40": 2.65, "60": 2.96, "80": 2.24, "100": 2.14},
    "gandiva": {"0": 1.35, "20": 1.77, "40": 2.16, "60": 2.27, "80": 1.65, "100": 1.54},
    "srsf": {"0": 1.14, "20": 1.67, "40": 1.94, "60": 1.84, "80": 1.54, "100": 1.38},
}
BID_ERROR: Final[Series] = {"0": 1.22, "5": 1.26, "10": 1.31, "20": 1.36}  # figure 17, maximum rho
# Figure 19, maximum rho by f at leases of 10 minutes, and by lease (s) at f = .8.
KNOB: Final[Series] = {
    "0": 9.8,
    "0.1": 6.3,
    "0.2": 5.8,
    "0.3": 6.0,
    "0.4": 5.2,
    "0.5": 4.7,
    "0.6": 4.6,
    "0.7": 4.4,
    "0.8": 2.30,
    "0.9": 2.56,
    "1": 3.97,
}
KNOB_LEASES: Final[Series] = {"300": 1.76, "600": 2.30, "1200": 3.75, "2400": 4.2}
