"""A server for each test."""

from collections.abc import Iterator

import grpc
import pytest

from tests.support.serving import Serving, serve


@pytest.fixture
def serving() -> Iterator[Serving]:
    with serve() as serving:
        yield serving


@pytest.fixture
def channel(serving: Serving) -> Iterator[grpc.Channel]:
    with serving.channel() as channel:
        yield channel
