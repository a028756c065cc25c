"""The lease book's lines and chunks, without a ZooKeeper."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_arbiter.adapters.memory_store import MemoryStore
from themis_arbiter.adapters.zookeeper import segments
from themis_arbiter.adapters.zookeeper.segments import Book, FormatError, Index, Segment, lines_of, pack, unpack
from themis_arbiter.core.codec import dumps
from themis_arbiter.core.events import Batch, Meter
from themis_arbiter.core.lease import Lease

NAMES = st.text(st.characters(), min_size=1, max_size=5)  # tabs, newlines, lone surrogates and all


def lease(name: str, round_no: int = 1) -> Lease:
    return Lease(
        lease_id=name,
        grant_id="g",
        gpu=f"{name}:0",
        app_id=name,
        job_id="j",
        epoch=1,
        round_no=round_no,
        start_ms=1,
        end_ms=9,
    )


def batch(**changes: object) -> Batch:
    made = Batch(batch_no=1, epoch=1, start_id="s", last_round=2, last_serial=3)
    return replace(made, **changes)  # type: ignore[arg-type]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    puts = draw(st.lists(st.tuples(NAMES, st.integers(1, 99)), max_size=6))
    meters = draw(st.lists(st.tuples(NAMES, st.none() | st.floats(0, 1e12)), max_size=4, unique_by=lambda one: one[0]))
    return batch(
        puts=tuple(lease(name, round_no) for name, round_no in puts),
        deletes=tuple(draw(st.lists(NAMES, max_size=3))),
        meters=tuple((n, None if x is None else Meter(attained=x, done=x, metered_ms=1)) for n, x in meters),
        admin=draw(NAMES),
    )


@given(st.lists(batches(), max_size=6), st.integers(0, 6))
def test_segments_hold_what_a_store_in_memory_would(given_batches: list[Batch], snapshot_after: int) -> None:
    memory = MemoryStore()
    memory.acquire_epoch()
    book = Book()
    for k, one in enumerate(given_batches):
        memory.commit(one)
        segment, chunks = pack(f"s{k}", lines_of(one, with_admin=True))
        book.add(unpack(segment, chunks))
        if k == snapshot_after:  # as it is when the book is written as one
            segment, chunks = pack("snapshot", book.lines())
            book = Book()
            book.add(unpack(segment, chunks))
    stored = memory.load()
    assert book.parse() == (stored.leases, stored.meters, stored.admin)


def test_what_does_not_compress_is_cut_into_chunks_that_a_node_can_hold() -> None:
    chance = random.Random(1)
    noise = "".join(chr(chance.randrange(0x4E00, 0x9000)) for _ in range(200_000))
    segment, chunks = pack("s", lines_of(batch(admin=noise), with_admin=True))
    assert segment.chunks == len(chunks) > 1
    assert max(map(len, chunks)) <= segments.CHUNK_BYTES_MAX
    book = Book()
    book.add(unpack(segment, chunks))
    assert book.parse()[2] == noise


def test_a_write_past_the_limit_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES_MAX", 30)
    with pytest.raises(FormatError, match=r"one write of .* more than 30"):
        pack("s", lines_of(batch(puts=(lease("a"),)), with_admin=False))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda x: x[:-1], "bytes where"),
        (lambda x: x[:-1] + b"?", "the checksum is another"),
        (lambda _: b"", "damaged: 0 bytes where"),
    ],
)
def test_a_damaged_segment_is_not_read(damage: object, says: str) -> None:
    segment, chunks = pack("s", ["L\t1\t2"])
    with pytest.raises(FormatError, match=says):
        unpack(segment, [damage(chunks[0])])  # type: ignore[operator]


def test_a_segment_that_unpacks_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    segment, chunks = pack("s", ["A\t" + "x" * 10_000])
    monkeypatch.setattr(segments, "LINES_BYTES_MAX", 5_000)
    with pytest.raises(FormatError, match="more than 5000"):
        unpack(segment, chunks)


def test_the_index_comes_back() -> None:
    index = Index((Segment("1-a-1", 2, 300_000, 7), Segment("1-a-2", 1, 10, 8)), 300_000, "start", 4, 5)
    assert Index.decode(index.encode()) == index
    assert index.log_bytes == 10


def test_the_next_versions_fields_are_left_out_and_its_format_is_refused() -> None:
    plain = json.loads(dumps(lease("a")))
    book = Book()
    book.add([f'L\t"a"\t{json.dumps(plain | {"added_later": 1})}'])
    assert book.parse()[0] == (lease("a"),)
    index = json.loads(Index().encode())
    assert Index.decode(json.dumps(index | {"format": 2, "added_later": []}).encode()) == Index()
    with pytest.raises(FormatError, match=r"newer version .format 2, this program reads up to 1.: upgrade"):
        Index.decode(json.dumps(index | {"format": 2, "readable_by": 2}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"format":1}', b'{"readable_by":1}'])
def test_what_is_no_index_is_not_read(data: bytes) -> None:
    with pytest.raises(FormatError, match="index"):
        Index.decode(data)


@pytest.mark.parametrize("line", ["L\tx\t{}", 'L\t"a"\t{}', 'L\t"a"\t[]', "Z\t1", "A\t3", "A\t"])
def test_a_line_that_is_none_is_not_read(line: str) -> None:
    def read() -> None:
        book = Book()
        book.add([line])
        book.parse()

    with pytest.raises(FormatError):
        read()
