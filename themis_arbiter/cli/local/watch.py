"""Progress of a run, through the arbiter's own AdminService: one plain line every few seconds."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Final

from themis_arbiter.cli.local.samples import Sample
from themis_arbiter.gen.themis.v1 import admin_pb2

ENDED: Final = "ENDED"


def short_names(nodes: Iterable[str]) -> dict[str, str]:
    """A short name for each node, in order: n1, n2, ..."""
    return {node: f"n{k}" for k, node in enumerate(sorted(nodes), start=1)}


def node_line(nodes: Sequence[admin_pb2.NodeView]) -> str:
    """Which node is which."""
    short = short_names(n.node for n in nodes)
    return ", ".join(f"{short[n.node]} = {n.node} ({n.gpus_total} GPUs, {n.rack.strip('/')})" for n in nodes)


def progress_line(
    elapsed_s: float, samples: Sequence[Sample], apps: Mapping[str, admin_pb2.AppView], nodes: Mapping[str, str]
) -> str:
    """One line: the time, and of each app its state, rho and the GPUs it holds by node."""
    return f"{elapsed_s:5.0f} s  " + " | ".join(_app_text(sample, apps.get(sample.app_id), nodes) for sample in samples)


def _app_text(sample: Sample, app: admin_pb2.AppView | None, nodes: Mapping[str, str]) -> str:
    if app is None:
        return f"{sample.name} -"
    rho = f"rho {app.rho:.2f}" if isfinite(app.rho) else "rho -"  # no share of this cluster would get it done
    if app.state == ENDED:
        return f"{sample.name} {app.final_status or ENDED} {rho}"
    held = gpus_text({nodes.get(n, n): count for n, count in app.gpus_by_node.items()})
    return f"{sample.name} {app.state} {rho} {app.gpus_held}/{app.gpus_wanted} GPUs {held}".rstrip()


def gpus_text(by_node: Mapping[str, int]) -> str:
    """GPUs by node: n1:4,n2:2."""
    return ",".join(f"{node}:{count}" for node, count in sorted(by_node.items()) if count)
