"""Everything that a lease store holds, in one file: a backup, or the way from one kind of store to another.

The first line is a record with the term's figures, counts, and a checksum over all but itself; the lines after it are those of
a snapshot in ZooKeeper (zookeeper/segments.py), under the same format number. Plain text, so that it can be looked into.
"""

import json
import os
import stat
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from themis_arbiter.adapters.zookeeper.segments import FORMAT, READABLE_BY, Book, FormatError, lines_of, record, to_bytes
from themis_arbiter.core.events import Batch
from themis_arbiter.core.types import Epoch, Millis
from themis_arbiter.ports import EPOCH_MAX, StoredState

FILE_MODE: Final = 0o600  # names of users and their apps
STATE_BYTES_MAX: Final = 1024 * 2**20
HEAD_BYTES_MAX: Final = 64 * 1024  # of the first line; the longest part of it is a path
KIND: Final = "themis-state"
BEGINNING: Final = f'{{"kind": "{KIND}"'.encode()
SQLITE: Final = b"SQLite format 3\0"
NOT_ONE: Final = "is not a file of `themis admin export-state`"


class StateFileError(Exception):
    """The file cannot be written or read; the message says why."""


def write_state(path: Path, state: StoredState, *, origin: str, made_ms: Millis) -> None:
    """Make the file `path`, on the disk when this returns. Errors: StateFileError, also where it is there already."""
    body = to_bytes("\n".join(lines_of(as_batch(state, state.epoch), with_admin=True)))
    head = {"kind": KIND, "format": FORMAT, "readable_by": READABLE_BY, "origin": origin, "made_ms": made_ms}
    head |= {"epoch": state.epoch, "start_id": state.start_id, "last_round": state.last_round}
    head |= {"last_serial": state.last_serial, "leases": len(state.leases), "accounts": len(state.meters)}
    head |= {"n_bytes": len(body)}
    head |= {"crc": _crc(head, body)}
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
    """What `write_state` put there. Errors: StateFileError, bounded whatever the file is."""
    try:
        with path.open("rb", buffering=0) as file:
            there = os.fstat(file.fileno())
            if not stat.S_ISREG(there.st_mode):
                raise StateFileError(f"{path}: {NOT_ONE}")
            if there.st_size > STATE_BYTES_MAX:
                raise StateFileError(f"{path}: is larger than {STATE_BYTES_MAX} bytes")
            data = file.read(HEAD_BYTES_MAX)
            if data.startswith(SQLITE):
                raise StateFileError(f"{path}: this is a store: take its state into a file first, with export-state")
            if not data.startswith(BEGINNING) or b"\n" not in data:
                raise StateFileError(f"{path}: {NOT_ONE}")
            data += file.readall()
    except OSError as err:
        raise StateFileError(f"{path}: cannot be read: {err.strerror}") from err
    head_line, _, body = data.partition(b"\n")
    try:
        return _state(record(head_line, "its first line"), body)
    except (FormatError, UnicodeDecodeError) as err:
        raise StateFileError(f"{path}: {err}") from err


def _state(head: dict[str, Any], body: bytes) -> StoredState:
    crc = head.pop("crc", None)
    n_bytes = _number(head, "n_bytes")
    if len(body) != n_bytes:
        raise FormatError(f"it is damaged: {len(body)} bytes after the first line, {n_bytes} were written")
    if crc != _crc(head, body):
        raise FormatError("it is damaged, or was changed: the checksum is another")
    start_id = head.get("start_id")
    if not isinstance(start_id, str):
        raise FormatError("its first line has no start_id")
    book = Book()
    book.add(body.decode("utf-8", "surrogatepass").split("\n"))
    leases, meters, admin = book.parse()
    counts = (_number(head, "leases"), _number(head, "accounts"))
    if (len(leases), len(meters)) != counts:
        told = f"{counts[0]} leases and {counts[1]} accounts"
        raise FormatError(f"its first line tells of {told}, {len(leases)} and {len(meters)} follow it")
    return StoredState(
        epoch=_number(head, "epoch"),
        start_id=start_id,
        leases=leases,
        meters=meters,
        last_round=_number(head, "last_round"),
        last_serial=_number(head, "last_serial"),
        admin=admin,
    )


def _crc(head: dict[str, Any], body: bytes) -> int:
    """Over all of the file but the checksum itself."""
    return zlib.crc32(body, zlib.crc32(to_bytes(json.dumps(head)) + b"\n"))


def _number(head: dict[str, Any], name: str) -> int:
    value = head.get(name)
    if type(value) is not int or not 0 <= value < EPOCH_MAX:
        raise FormatError(f"its first line has no {name}, a whole number from 0 to {EPOCH_MAX - 1}")
    return value


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
