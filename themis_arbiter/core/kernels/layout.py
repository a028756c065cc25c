"""One auction as one array of whole numbers, and one allocation of it as another.

The floor is laminar: slots in machines in racks in the cluster. An allocation is a set of promises ("3 GPUs of rack 2"), each
counted at its place and at all places around it. Promises can be kept if and only if no count falls below 0, in whatever
order they were made, so which GPUs they are is left open until the winners are known.

A market array `m` begins with a header: counts, and where in it each table begins. So `m[m[OPTION_WORTH] + option]` is an
option's worth, and `m[m[KEYS_START] + option]` .. `m[m[KEYS_START] + option + 1]` bound its entries in KEYS. A state array `s`
has no header; its tables begin where the market's says: `s[m[CHOSEN] + app]`. One array of each keeps compiling quick: numba
passes every array as seven values through every call.

Indices: app (bids by app id), option (rows that can win something, of an app from the most worth to the least), need (so many
GPUs so close together), key (a need as prices see it), cell (slot), machine, rack, class (machines with equally many GPUs on
offer).
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]

NOBODY: Final = -1  # no option, no pin, no caps

# Kinds of needs, in the order in which an exact search places them.
SLOT: Final = 0
WITHIN_RACK: Final = 1  # split over one rack's machines in any way
MACHINE: Final = 2
SPLIT_RACK: Final = 3  # over one rack's machines, in units or within what each has room for
SPLIT: Final = 4  # the same over all machines
ANYWHERE: Final = 5

# Where a promise is: by slot, machine, rack, or anywhere.
AT_CELL: Final = 0
AT_MACHINE: Final = 1
AT_RACK: Final = 2
AT_LARGE: Final = 3

# Header of a market: counts.
COUNTS: Final = (
    "N_GPUS",
    "N_CELLS",
    "N_MACHINES",
    "N_RACKS",
    "N_CLASSES",
    "N_APPS",
    "N_OPTIONS",
    "N_KEYS",
    "N_STATE",  # entries of a state
)
(N_GPUS, N_CELLS, N_MACHINES, N_RACKS, N_CLASSES, N_APPS, N_OPTIONS, N_KEYS, N_STATE) = range(len(COUNTS))

# Header of a market: where its tables begin.
TABLES: Final = (
    "CELL_MACHINE",
    "MACHINE_RACK",
    "RACK_START",
    "RACK_MACHINE",
    "CLASS_GPUS",
    "NEED_KIND",
    "NEED_COUNT",
    "NEED_UNIT",
    "NEED_PIN",  # cell, machine or rack by kind; NOBODY where any will do
    "NEED_CAPS",  # row of CAPS; NOBODY where nothing but the supply limits
    "CAPS",  # [row][machine]
    "OPTION_START",  # by app
    "OPTION_WORTH",  # over the zero row, in quanta, at least 1
    "OPTION_GPUS",
    "NEED_START",  # by option
    "NEEDS",  # in order of placing
    "KEEP_START",  # by option
    "KEEP_CELL",
    "KEEP_GPUS",
    "NAMED_START",  # by option
    "NAMED",  # GPUs it keeps that another app's option keeps as well
    "KEYS_START",  # by option
    "KEYS",
    "KEY_COUNT",
    "KEY_FIRST",  # its places: rows of PLACE_GPUS
    "KEY_LAST",
    "PLACE_GPUS",  # [row][class]: GPUs there
    "PROMISE_START",  # by app, and one more for a set aside
    "EMPTY",  # the state in which nobody has anything
)
(
    CELL_MACHINE,
    MACHINE_RACK,
    RACK_START,
    RACK_MACHINE,
    CLASS_GPUS,
    NEED_KIND,
    NEED_COUNT,
    NEED_UNIT,
    NEED_PIN,
    NEED_CAPS,
    CAPS,
    OPTION_START,
    OPTION_WORTH,
    OPTION_GPUS,
    NEED_START,
    NEEDS,
    KEEP_START,
    KEEP_CELL,
    KEEP_GPUS,
    NAMED_START,
    NAMED,
    KEYS_START,
    KEYS,
    KEY_COUNT,
    KEY_FIRST,
    KEY_LAST,
    PLACE_GPUS,
    PROMISE_START,
    EMPTY,
) = range(len(COUNTS), len(COUNTS) + len(TABLES))

# Header of a market: where the tables of a state begin.
STATE_TABLES: Final = (
    "CELLS",  # GPUs left, by slot
    "MACHINES",
    "RACKS",
    "LEFT",  # in all
    "IS_NAMED",  # 1 where taken
    "CHOSEN",  # option by app, or NOBODY
    "KIND",  # of each promise
    "WHERE",
    "GPUS",
    "SERVES",  # position in NEEDS, NOBODY for what is kept
    "USED",  # promises by app, and by the set aside
)
(CELLS, MACHINES, RACKS, LEFT, IS_NAMED, CHOSEN, KIND, WHERE, GPUS, SERVES, USED) = range(
    len(COUNTS) + len(TABLES), len(COUNTS) + len(TABLES) + len(STATE_TABLES)
)
HEADER: Final = len(COUNTS) + len(TABLES) + len(STATE_TABLES)
