"""One module for each outside thing: clocks, stores, journals. Each implements a port and passes its contract suite."""
