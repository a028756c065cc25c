"""The plugin inside the ResourceManager, reached by Py4J on loopback.

Py4J is a full remote shell into that JVM, so its token is guarded: `gateway.json` and its folder must be the owner's
alone, the token goes into no log (Py4J's own debug lines would hold it, so they are switched off) and on no command line.

Calls are made on one connection, without Py4J's pool: its client repeats a call whose answer did not come, and
a lease update that runs twice is not what anybody asked for. A connection serves one thread and ends with its first
network error; every wait on it has a limit, so a ResourceManager that hangs holds nobody up for ever.
"""

import contextlib
import ipaddress
import json
import logging
import os
import socket
import stat
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from py4j import protocol as py4j
from py4j.java_gateway import GatewayConnection, GatewayParameters

FILE_NAME: Final = "gateway.json"
FILE_BYTES_MAX: Final = 16_384
TOKEN_LENGTH_MIN: Final = 16
CALL_S: Final = 10.0  # until an answer must be there; the longest wait inside a call is one second
ERROR_LENGTH_MAX: Final = 300  # characters of a Java error's text


class GatewayError(Exception):
    """The plugin cannot be reached or did not answer as it should; trying again may help."""


class GatewayMissing(GatewayError):
    """There is no gateway: no active ResourceManager with the plugin runs here."""


class InsecureGatewayError(Exception):
    """`gateway.json` or its folder is open to others; a person has to put that right."""


class Gateway(Protocol):
    """The plugin's calls (docs/reference/plugin-protocol.md). Errors of each: GatewayError."""

    def hello(self) -> bytes:
        """A `Hello`."""
        ...

    def snapshot(self) -> bytes:
        """A full `Report`."""
        ...

    def changes(self, after_seq: int, wait_ms: int) -> bytes:
        """A `Report` of what changed after `after_seq`; waits for something to tell."""
        ...

    def apply(self, lease_update: bytes) -> bytes:
        """A `LeaseReply`."""
        ...

    def diagnostics(self, diagnostics: bytes) -> bytes:
        """A `LeaseReply`."""
        ...

    def close(self) -> None:
        """End the connection, and a call that waits on it with GatewayError. Any thread may call this."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAddress:
    """What `gateway.json` says."""

    host: str
    port: int
    token: str = field(repr=False)
    start_id: str


def read_gateway_file(folder: Path) -> GatewayAddress:
    """The address in `folder`. Errors: GatewayMissing, GatewayError (unreadable), InsecureGatewayError."""
    path = folder / FILE_NAME
    try:
        _check_owner_only(folder, folder.stat(), 0o700)
        # Opened without following a link and checked by its handle: what was checked is what is read.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise GatewayMissing(f"no {path}: no active ResourceManager with the plugin here") from None
    except OSError as err:
        raise GatewayError(f"cannot read {path}: {err.strerror}") from None
    try:
        status = os.fstat(handle)
        _check_owner_only(path, status, 0o600)
        if not stat.S_ISREG(status.st_mode):
            raise InsecureGatewayError(f"{path} is no plain file")
        content = os.read(handle, FILE_BYTES_MAX + 1)
    finally:
        os.close(handle)
    return _parse(path, content)


def _check_owner_only(path: Path, status: os.stat_result, mode: int) -> None:
    if status.st_uid != os.geteuid():
        text = f"{path} belongs to user {status.st_uid}, this process runs as {os.geteuid()}"
        raise InsecureGatewayError(f"{text}: run the bridge as the ResourceManager's user")
    if status.st_mode & 0o077:
        raise InsecureGatewayError(f"{path} is open to others than its owner: chmod {mode:o} {path}")


def _parse(path: Path, content: bytes) -> GatewayAddress:
    try:
        if len(content) > FILE_BYTES_MAX:
            raise ValueError(f"more than {FILE_BYTES_MAX} bytes")
        plain = json.loads(content)
        host, port, token, start_id = (plain[name] for name in ("host", "port", "token", "start_id"))
        if not isinstance(host, str) or not ipaddress.ip_address(host).is_loopback:
            raise ValueError("the host is no loopback address")
        if not isinstance(port, int) or not 0 < port < 65_536:
            raise ValueError("the port is none")
        if not isinstance(start_id, str) or not start_id:
            raise ValueError("there is no start_id")
        if not isinstance(token, str) or len(token) < TOKEN_LENGTH_MIN:
            raise ValueError(f"the token has less than {TOKEN_LENGTH_MIN} characters")
        if not token.isascii() or not token.isprintable():
            raise ValueError("the token has characters that no token has")
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        # Never the content itself: the token is in it.
        reason = f"{err.args[0]} is missing" if isinstance(err, KeyError) else _reason(err)
        raise GatewayError(f"{path} cannot be used: {reason}") from None
    return GatewayAddress(host=host, port=port, token=token, start_id=start_id)


def _reason(err: Exception) -> str:
    return "it is no JSON" if isinstance(err, json.JSONDecodeError | UnicodeDecodeError) else str(err)


class Py4JGateway:
    """One connection to the plugin, opened by the first call. For one thread, except `close`."""

    def __init__(self, address: GatewayAddress, call_s: float = CALL_S) -> None:
        for name in ("py4j", "py4j.java_gateway"):
            # Its debug lines hold the token; its errors come with a stack for each try, and are told by who calls us.
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._parameters = GatewayParameters(
            address=address.host, port=address.port, auth_token=address.token, read_timeout=call_s
        )
        self._lock = threading.Lock()
        self._connection: GatewayConnection | None = None
        self._is_closed = False

    def hello(self) -> bytes:
        """A `Hello`."""
        return self._call("hello")

    def snapshot(self) -> bytes:
        """A full `Report`."""
        return self._call("snapshot")

    def changes(self, after_seq: int, wait_ms: int) -> bytes:
        """A `Report` of what changed after `after_seq`."""
        # Typed by hand: Py4J would send a small number as an int, and Java's parameter is a long.
        return self._call("changes", f"{py4j.LONG_TYPE}{after_seq}\n", py4j.get_command_part(wait_ms))

    def apply(self, lease_update: bytes) -> bytes:
        """A `LeaseReply`."""
        return self._call("apply", py4j.get_command_part(lease_update))

    def diagnostics(self, diagnostics: bytes) -> bytes:
        """A `LeaseReply`."""
        return self._call("diagnostics", py4j.get_command_part(diagnostics))

    def close(self) -> None:
        """End the connection, also under a call that another thread waits on."""
        with self._lock:
            self._is_closed = True
            connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):  # it may not be connected (any more)
                connection.socket.shutdown(socket.SHUT_RDWR)  # wakes who reads; closing alone would not
            stream = getattr(connection, "stream", None)  # there is one once it has connected
            if stream is not None:
                stream.close()
            connection.socket.close()

    def _connect(self) -> GatewayConnection:
        if self._connection is not None:
            return self._connection
        try:
            connection = GatewayConnection(self._parameters)
            with self._lock:
                self._connection = connection  # before it connects, so that `close` can end that too
                is_closed = self._is_closed
            if is_closed:
                connection.socket.close()
                raise GatewayError("the gateway's connection was closed")
            connection.start()
        except py4j.Py4JAuthenticationError:
            self.close()
            raise GatewayError("the gateway does not take the token of gateway.json") from None
        except (py4j.Py4JError, OSError) as err:
            self.close()
            raise GatewayError(f"cannot connect to the gateway: {_cause(err)}") from None
        return connection

    def _call(self, method: str, *arguments: str) -> bytes:
        command = f"{py4j.CALL_COMMAND_NAME}{py4j.ENTRY_POINT_OBJECT_ID}\n{method}\n{''.join(arguments)}"
        answer = self._send(command)
        if py4j.is_error(answer)[0]:
            raise GatewayError(f"the plugin's {method} failed: {self._java_error(answer)}")
        value = None
        if answer[1:2] == py4j.BYTES_TYPE:
            value = py4j.get_return_value(answer, None)
        if not isinstance(value, bytes):
            raise GatewayError(f"the plugin's {method} returned no bytes")
        return value

    def _send(self, command: str) -> str:
        if self._is_closed:
            raise GatewayError("the gateway's connection was closed")
        connection = self._connect()
        try:
            answer: str = connection.send_command(command + py4j.END_COMMAND_PART)
        except (py4j.Py4JError, OSError, ValueError) as err:
            self.close()
            raise GatewayError(f"no answer from the gateway: {_cause(err)}") from None
        return answer

    def _java_error(self, answer: str) -> str:
        """What a Java exception says; the gateway is then told to forget it."""
        if answer[1:2] != py4j.REFERENCE_TYPE:
            return ascii(answer[1:][:ERROR_LENGTH_MAX])
        exception_id = answer[2:]
        text = self._send(f"{py4j.CALL_COMMAND_NAME}{exception_id}\ntoString\n")
        self._send(f"{py4j.MEMORY_COMMAND_NAME}{py4j.MEMORY_DEL_SUBCOMMAND_NAME}{exception_id}\n")
        return ascii(text[2:][:ERROR_LENGTH_MAX])


def _cause(err: BaseException) -> str:
    cause = getattr(err, "cause", None) or err
    return "it took too long" if isinstance(cause, TimeoutError) else str(cause)[:ERROR_LENGTH_MAX]
