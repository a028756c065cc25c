"""Watches the engine during a replay: renewals for the books, decision records for rounds.jsonl, what rounds cost."""

import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final, TextIO

from themis_arbiter.core.effects import Effect, LeasesMoved, RoundClosed
from themis_arbiter.core.events import Event
from themis_arbiter.core.lease import PENDING, ids_of
from themis_arbiter.core.types import JobId, LeaseId, Millis, RoundNo

# What rounds.jsonl leaves out of a decision record: the same in every round, or of every app and job that waits.
LEFT_OUT: Final = frozenset({"machines", "room", "gpu_types", "gpu_speeds", "apps", "order"})

# Names only, and in one order always: what is equal to what it was is the same text.
OF_NAMES: Final = frozenset({"policy", "kind", "order_by", "offered", "ending", "unsold", "unused", "leftovers", "moves"})

NoteRenewal = Callable[[JobId, Millis, RoundNo], None]


class RoundsObserver:
    """An engine's observer. `records` gets a line a round as it closes; `renewed` each lease that went on."""

    def __init__(self, lease_ms: Millis, renewed: NoteRenewal, records: TextIO) -> None:
        self._lease_ms, self._renewed, self._records = lease_ms, renewed, records
        self._lines = RecordLines()
        self._pending_since: dict[LeaseId, Millis] = {}
        self.rounds = 0
        self.broken: OSError | None = None  # why a record could not be written; the run cannot go on then
        self.reserved_gpu_s = 0.0  # GPUs that are free and wait for the rest of a gang's

    def observe(self, event: Event, effects: tuple[Effect, ...]) -> None:
        """Look at one step."""
        renewed: dict[tuple[JobId, Millis], None] = {}
        round_no: RoundNo = 0
        for effect in effects:
            if isinstance(effect, LeasesMoved):
                state_from, state = effect.state_from, effect.state
                if state_from is state:  # only a renewal leaves the state
                    renewed.update(dict.fromkeys([(x.job_id, x.end_ms) for x in effect.leases]))
                elif state is PENDING:
                    self._pending_since.update(dict.fromkeys(ids_of(effect.leases), event.at_ms))
                elif state_from is PENDING:
                    for lease in effect.leases:
                        self.reserved_gpu_s += (event.at_ms - self._pending_since.pop(lease.lease_id)) / 1000.0
            elif isinstance(effect, RoundClosed):
                round_no = effect.round_no
                self.rounds += 1
                self._write(self._lines.line(effect.record))
        for job_id, end_ms in renewed:
            self._renewed(job_id, end_ms - self._lease_ms, round_no)

    def _write(self, line: str) -> None:
        """Live, an observer that fails stops nothing; a run without its records is none, so its owner has to look."""
        try:
            self._records.write(line)
        except OSError as problem:
            self.broken = self.broken or problem


class RecordLines:
    """Decision records as lines of rounds.jsonl. What is the same as in the line before is not written out anew."""

    def __init__(self) -> None:
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode
        self._last: dict[str, tuple[Any, str]] = {}

    def line(self, record: Mapping[str, Any]) -> str:
        """The record's line, with its end."""
        return "{" + ",".join([f'"{key}":{self._text(key, value)}' for key, value in compact(record).items()]) + "}\n"

    def _text(self, key: str, value: Any) -> str:
        kind = type(value)
        if kind is int or (kind is float and isfinite(value)):
            return repr(value)  # which is its JSON, without an encoder
        if key not in OF_NAMES and value != []:
            return self._encode(value)
        last = self._last.get(key)
        if last is not None and last[0] == value:
            return last[1]
        text = self._encode(value)
        self._last[key] = (value, text)
        return text


def compact(record: Mapping[str, Any]) -> dict[str, Any]:
    """A decision record for rounds.jsonl."""
    bids = record.get("bids", ())
    out = {key: record[key] for key in record if key not in LEFT_OUT and key != "bids"}
    out["bidders"] = [bid["app_id"] for bid in bids]
    out["bids"] = [[[row["rho"], sum(_taken(p) for p in row["parts"])] for row in bid["rows"]] for bid in bids]
    if "bound" in record and "welfare" in record:
        out["gap"] = max(0.0, record["bound"] - record["welfare"])
    return out


def _taken(part: Mapping[str, Any]) -> int:
    return len(part["keep"]) + int(part["more"])
