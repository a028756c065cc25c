"""What the lease book looks like in ZooKeeper: a snapshot, and the changes since, each a compressed run of lines.

A node holds at most about 1 MiB and a request too, while a book of 20,000 leases has several, and all of them may change in one
round. So nothing is kept in place. Each batch is a *segment* of its own: lines of what changed, compressed, cut into chunks of
at most CHUNK_BYTES_MAX, each chunk a node. The `Index`, one small node, names the segments that count, in order; a segment
that it does not name does not exist, whatever nodes are there. Writing the index is what commits.

    L <lease id> <lease>      a lease as it stands            l <lease id>     a lease that ended
    M <job id> <account>      a job's account as it stands    m <job id>       an account that is gone
    A <text>                  what admins have set

Fields are JSON with a tab between, so no name can break a line. Later lines win. A snapshot is the same with only L, M and A.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

from themis_arbiter.core.codec import dumps, from_plain
from themis_arbiter.core.events import Batch, Meter
from themis_arbiter.core.lease import Lease
from themis_arbiter.core.types import CoreError

FORMAT: Final = 1
# A program reads records whose `readable_by` is not above its FORMAT. Raise that only when an older program would read wrongly.
READABLE_BY: Final = 1
CHUNK_BYTES_MAX: Final = 256 * 1024
SEGMENT_BYTES_MAX: Final = 64 * 2**20  # compressed: more than ten million leases
LINES_BYTES_MAX: Final = 1024 * 2**20  # unpacked, so that a damaged segment cannot fill the memory
ZLIB_LEVEL: Final = 3

ValueT = TypeVar("ValueT")


class FormatError(Exception):
    """A record that cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One run of lines: where its chunks are (`NAME-0`, `NAME-1`, ...), and what they must come to."""

    name: str
    chunks: int
    n_bytes: int
    crc: int

    @property
    def nodes(self) -> list[str]:
        """The names of its chunks."""
        return [f"{self.name}-{k}" for k in range(self.chunks)]


@dataclass(frozen=True, slots=True)
class Index:
    """The book: its segments in order (a snapshot first, where there was ever one) and the term's figures."""

    segments: tuple[Segment, ...] = ()
    snapshot_bytes: int = 0
    start_id: str = ""
    last_round: int = 0
    last_serial: int = 0

    @property
    def log_bytes(self) -> int:
        """Bytes of all segments but the snapshot."""
        return sum(one.n_bytes for one in self.segments) - self.snapshot_bytes

    def with_batch(self, batch: Batch, segment: Segment) -> "Index":
        """The book after `batch`, whose lines are in `segment`."""
        return Index((*self.segments, segment), self.snapshot_bytes, batch.start_id, batch.last_round, batch.last_serial)

    def compacted(self, snapshot: Segment) -> "Index":
        """The same book in one segment."""
        return replace(self, segments=(snapshot,), snapshot_bytes=snapshot.n_bytes)

    def encode(self) -> bytes:
        """As its node's data."""
        plain = {"format": FORMAT, "readable_by": READABLE_BY, "start_id": self.start_id, "last_round": self.last_round}
        plain |= {"last_serial": self.last_serial, "snapshot_bytes": self.snapshot_bytes}
        plain["segments"] = [[s.name, s.chunks, s.n_bytes, s.crc] for s in self.segments]
        return to_bytes(json.dumps(plain, separators=(",", ":"), ensure_ascii=False))

    @staticmethod
    def decode(data: bytes) -> "Index":
        """Of its node's data. Errors: FormatError."""
        plain = record(data, "the index of the lease book")
        try:
            segments = tuple(Segment(str(n), int(c), int(b), int(crc)) for n, c, b, crc in plain["segments"])
            figures = (int(plain["snapshot_bytes"]), str(plain["start_id"]))
            return Index(segments, *figures, int(plain["last_round"]), int(plain["last_serial"]))
        except (KeyError, TypeError, ValueError) as err:
            raise FormatError(f"the index of the lease book cannot be read: {err!r}") from err


def record(data: bytes, what: str) -> dict[str, Any]:
    """A JSON record that says which format it has. Errors: FormatError, where it is none or too new."""
    try:
        plain = json.loads(data.decode("utf-8", "surrogatepass"))
        readable_by = int(plain["readable_by"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as err:
        raise FormatError(f"{what} is none of this program's records: {type(err).__name__}") from err
    if readable_by > FORMAT:
        raise FormatError(f"{what} is of a newer version (format {readable_by}, this program reads up to {FORMAT}): upgrade it")
    assert isinstance(plain, dict)
    return plain


def lines_of(batch: Batch, *, with_admin: bool) -> list[str]:
    """What `batch` changes, a line each. Errors: CoreError for a value that is not a number."""
    lines = [f"L\t{dumps(lease.lease_id)}\t{dumps(lease)}" for lease in batch.puts]
    lines += [f"l\t{dumps(lease_id)}" for lease_id in batch.deletes]
    lines += [f"m\t{dumps(j)}" if meter is None else f"M\t{dumps(j)}\t{dumps(meter)}" for j, meter in batch.meters]
    if with_admin:
        lines.append(f"A\t{dumps(batch.admin)}")
    return lines


def pack(name: str, lines: Iterable[str]) -> tuple[Segment, list[bytes]]:
    """A segment and its chunks. Errors: FormatError where it would be larger than SEGMENT_BYTES_MAX."""
    packed = zlib.compress(to_bytes("\n".join(lines)), ZLIB_LEVEL)
    if len(packed) > SEGMENT_BYTES_MAX:
        raise FormatError(f"one write of {len(packed)} bytes, more than {SEGMENT_BYTES_MAX}")
    chunks = [packed[k : k + CHUNK_BYTES_MAX] for k in range(0, len(packed), CHUNK_BYTES_MAX)]
    return Segment(name, len(chunks), len(packed), zlib.crc32(packed)), chunks


def unpack(segment: Segment, chunks: Iterable[bytes]) -> list[str]:
    """The lines of a segment. Errors: FormatError where the chunks are not what was written."""
    packed = b"".join(chunks)
    if len(packed) != segment.n_bytes or zlib.crc32(packed) != segment.crc:
        lengths = f"{len(packed)} bytes where {segment.n_bytes} were written"
        what = "the checksum is another" if len(packed) == segment.n_bytes else lengths
        raise FormatError(f"segment {segment.name} is damaged: {what}")
    try:
        opened = zlib.decompressobj()
        text = opened.decompress(packed, LINES_BYTES_MAX)
    except zlib.error as err:
        raise FormatError(f"segment {segment.name} is damaged: {err}") from err
    if opened.unconsumed_tail:
        raise FormatError(f"segment {segment.name} holds more than {LINES_BYTES_MAX} bytes")
    return text.decode("utf-8", "surrogatepass").split("\n") if text else []


class Book:
    """The lines of some segments taken together: what stands, as text."""

    def __init__(self) -> None:
        self.leases: dict[str, str] = {}
        self.meters: dict[str, str] = {}
        self.admin = '""'

    def add(self, lines: Iterable[str]) -> None:
        """Take in a later segment. Errors: FormatError."""
        for line in lines:
            kind, _, rest = line.partition("\t")
            key, _, value = rest.partition("\t")
            if kind == "L":
                self.leases[key] = value
            elif kind == "M":
                self.meters[key] = value
            elif kind == "l":
                self.leases.pop(key, None)
            elif kind == "m":
                self.meters.pop(key, None)
            elif kind == "A":
                self.admin = rest
            elif line:
                raise FormatError(f"a line of unknown kind {kind[:10]!a}")

    def lines(self) -> list[str]:
        """All of it, as a snapshot's lines."""
        lines = [f"L\t{key}\t{value}" for key, value in self.leases.items()]
        lines += [f"M\t{key}\t{value}" for key, value in self.meters.items()]
        return [*lines, f"A\t{self.admin}"]

    def parse(self) -> tuple[tuple[Lease, ...], tuple[tuple[str, Meter], ...], str]:
        """Leases in order of id, accounts in order of job id, what admins set. Errors: FormatError."""
        leases = {_text(key): _value(Lease, key, text) for key, text in self.leases.items()}
        meters = {_text(key): _value(Meter, key, text) for key, text in self.meters.items()}
        in_order = tuple(leases[key] for key in sorted(leases))
        return in_order, tuple((key, meters[key]) for key in sorted(meters)), _text(self.admin)


_FIELD_NAMES: Final[dict[type, frozenset[str]]] = {kind: frozenset(f.name for f in fields(kind)) for kind in (Lease, Meter)}


def _text(encoded: str) -> str:
    try:
        text = json.loads(encoded)
    except ValueError as err:
        raise FormatError(f"{encoded[:80]!a} is no text: {err}") from err
    if not isinstance(text, str):
        raise FormatError(f"{encoded[:80]!a} is no text")
    return text


def _value(kind: type[ValueT], key: str, text: str) -> ValueT:
    """A lease or an account. Fields that a later version added are left out; a change that may not be sets `readable_by`."""
    known = _FIELD_NAMES[kind]
    try:
        plain = json.loads(text)
        if not plain.keys() <= known:
            plain = {name: value for name, value in plain.items() if name in known}
        made: ValueT = from_plain(kind, plain)
    except (CoreError, ValueError, AttributeError) as err:
        raise FormatError(f"{kind.__name__} {key[:80]} cannot be read: {err}") from err
    return made


def to_bytes(text: str) -> bytes:
    """UTF-8; lone surrogates, which Java can send, come through as they are."""
    return text.encode("utf-8", "surrogatepass")
