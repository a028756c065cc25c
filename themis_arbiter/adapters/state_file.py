"""Everything that a lease store holds, in one file: a backup, or the way from one kind of store to another.

The first line is a record with the term's figures and what the lines after it come to; those are the lines of a snapshot in
ZooKeeper (zookeeper/segments.py), under the same format number. Plain text, so that it can be looked into.
"""

import json
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from themis_arbiter.adapters.zookeeper.segments import FORMAT, READABLE_BY, Book, FormatError, lines_of, record, to_bytes
from themis_arbiter.core.events import Batch
from themis_arbiter.core.types import Epoch, Millis
from themis_arbiter.ports import StoredState

FILE_MODE: Final = 0o600  # names of users and their apps
STATE_BYTES_MAX: Final = 1024 * 2**20
KIND: Final = "themis-state"


class StateFileError(Exception):
    """The file cannot be written or read; the message says why."""


def write_state(path: Path, state: StoredState, *, origin: str, made_ms: Millis) -> None:
    """Make the file `path`, on the disk when this returns. Errors: StateFileError, also where it is there already."""
    body = to_bytes("\n".join(lines_of(as_batch(state, state.epoch), with_admin=True)))
    head = {"kind": KIND, "format": FORMAT, "readable_by": READABLE_BY, "origin": origin, "made_ms": made_ms}
    head |= {"epoch": state.epoch, "start_id": state.start_id, "last_round": state.last_round}
    head |= {"last_serial": state.last_serial, "leases": len(state.leases), "accounts": len(state.meters)}
    head |= {"n_bytes": len(body), "crc": zlib.crc32(body)}
    made = False
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as out:
            made = True
            out.write(to_bytes(json.dumps(head)) + b"\n" + body)
            out.flush()
            os.fsync(out.fileno())
    except FileExistsError as err:
        raise StateFileError(f"{path}: is there already; name a new file") from err
    except OSError as err:
        if made:
            with suppress(OSError):
                path.unlink()
        raise StateFileError(f"{path}: cannot be written: {err.strerror}") from err


def read_state(path: Path) -> StoredState:
    """What `write_state` put there. Errors: StateFileError."""
    try:
        if path.stat().st_size > STATE_BYTES_MAX:
            raise StateFileError(f"{path}: is larger than {STATE_BYTES_MAX} bytes")
        head_line, _, body = path.read_bytes().partition(b"\n")
    except OSError as err:
        raise StateFileError(f"{path}: cannot be read: {err.strerror}") from err
    try:
        head = record(head_line, "its first line")
        if head.get("kind") != KIND:
            raise FormatError("it is not one of `themis admin export-state`")
        return _state(head, body)
    except (FormatError, KeyError, TypeError, ValueError) as err:
        text = str(err) if isinstance(err, FormatError) else f"its first line lacks something: {err!r}"
        raise StateFileError(f"{path}: {text}") from err


def _state(head: dict[str, Any], body: bytes) -> StoredState:
    if (len(body), zlib.crc32(body)) != (int(head["n_bytes"]), int(head["crc"])):
        raise FormatError(f"it is damaged: {len(body)} bytes after the first line, {head['n_bytes']} were written")
    book = Book()
    book.add(body.decode("utf-8", "surrogatepass").split("\n"))
    leases, meters, admin = book.parse()
    return StoredState(
        epoch=int(head["epoch"]),
        start_id=str(head["start_id"]),
        leases=leases,
        meters=meters,
        last_round=int(head["last_round"]),
        last_serial=int(head["last_serial"]),
        admin=admin,
    )


def as_batch(state: StoredState, epoch: Epoch) -> Batch:
    """All of it as one batch of `epoch`, for a store that holds nothing."""
    return Batch(
        batch_no=1,
        epoch=epoch,
        start_id=state.start_id,
        last_round=state.last_round,
        last_serial=state.last_serial,
        puts=state.leases,
        meters=state.meters,
        admin=state.admin,
    )
