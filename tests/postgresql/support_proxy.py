"""Proxies between the driver and the server: one that loses connections, one that pools them.

Both speak just enough of the protocol, see "Frontend/Backend Protocol" in PostgreSQL's manual: a
message is a byte that says what it is, the length of the rest in four bytes, and the rest.
"""

from __future__ import annotations

import os
import select
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
from sqlalchemy import make_url

from tests.places import PostgresPlace

Message: TypeAlias = tuple[bytes, bytes]  # what it is, and all of its bytes

READY = b"Z"
SYNC, QUERY = b"S", b"Q"
_SOCKET = ".s.PGSQL.5432"


class Lost(Exception):
    """The other side has gone."""


class Peer:
    """One side of a connection, as messages."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        connected.setblocking(True)
        self._received = b""

    def send(self, data: bytes) -> None:
        """Send bytes; raises Lost."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Lost from error

    def receive(self) -> list[Message]:
        """Wait for bytes; the messages that they complete. Raises Lost."""
        with suppress(OSError):
            got = self.socket.recv(65_536)
            if got:
                self._received += got
                return list(self._complete())
        raise Lost

    def startup(self) -> bytes:
        """The first message of a client, which has no byte before its length."""
        while len(self._received) < 4 or len(self._received) < _length(self._received):
            got = self.socket.recv(65_536)
            if not got:
                raise Lost
            self._received += got
        size = _length(self._received)
        message, self._received = self._received[:size], self._received[size:]
        return message

    def close(self) -> None:
        """Hang up, whoever is waiting on it."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _complete(self) -> Iterator[Message]:
        while len(self._received) >= 5 and len(self._received) > _length(self._received[1:]):
            size = 1 + _length(self._received[1:])
            message, self._received = self._received[:size], self._received[size:]
            yield message[:1], message


def _length(data: bytes) -> int:
    return int.from_bytes(data[:4], "big")


@contextmanager
def _listening(serve: Callable[[Peer], None]) -> Iterator[str]:
    """Serve each client on a thread of its own; the folder of the socket that they connect to."""
    with (
        tempfile.TemporaryDirectory(prefix="proxy-") as folder,
        socket.socket(socket.AF_UNIX) as at,
    ):
        at.bind(str(Path(folder) / _SOCKET))
        at.listen()
        clients: list[Peer] = []
        threads: list[threading.Thread] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    clients.append(Peer(at.accept()[0]))
                    threads.append(threading.Thread(target=serve, args=(clients[-1],)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield folder
        finally:
            at.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for client in clients:
                client.close()
            for thread in threads:
                thread.join()


def _through(place: PostgresPlace, folder: str) -> PostgresPlace:
    url = make_url(place.url).set(host=None, port=None).update_query_dict({"host": folder})
    return PostgresPlace(url.render_as_string(hide_password=False))


def _connect(place: PostgresPlace) -> psycopg.Connection[Any]:
    url = (
        make_url(place.url)
        .set(drivername="postgresql")
        .update_query_dict({"application_name": "broker", "client_encoding": "utf8"})
    )
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)


def _socket_of(connection: psycopg.Connection[Any]) -> Peer:
    return Peer(socket.socket(fileno=os.dup(connection.pgconn.socket)))


def _welcome(connection: psycopg.Connection[Any]) -> bytes:
    """What a server says to a client that it lets in."""
    names = ("server_version", "client_encoding", "standard_conforming_strings", "DateStyle")
    said = _message(b"R", bytes(4))
    for name in names:
        value = connection.info.parameter_status(name) or ""
        said += _message(b"S", name.encode() + b"\0" + value.encode() + b"\0")
    return said + _message(b"K", bytes(8)) + _message(READY, b"I")


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + (len(content) + 4).to_bytes(4, "big") + content


# ------------------------------------------------------------------------------- losing connections

#: What becomes of the connection on which a batch of messages is about to be passed on.
BEFORE, HALFWAY, AFTER = "before", "halfway", "after"

COMMIT = "COMMIT\0"  # the whole of a statement, for BEGIN may say COMMITTED


@dataclass
class LosingProxy:
    """Passes everything on, but loses the connection on which the next `trigger` comes by.

    It does so `when`: `BEFORE` any of that batch of messages is passed on, `HALFWAY` through its
    bytes, or `AFTER` the server has done what it asks for, with nothing of the answer passed on.
    """

    place: PostgresPlace
    trigger: bytes = b""
    when: str = BEFORE
    keeps_losing: bool = False
    lost: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lose(self, trigger: str, when: str) -> None:
        """Lose the connection on which a statement with these words comes next."""
        with self._lock:
            self.trigger, self.when = trigger.encode(), when

    def _serve(self, client: Peer) -> None:
        with suppress(Lost), _connect(self.place) as connection:
            server = _socket_of(connection)
            client.startup()
            client.send(_welcome(connection))
            is_lost = threading.Event()
            answers = threading.Thread(target=_relay, args=(server, client, is_lost))
            answers.start()
            try:
                self._pass_on(client, server, is_lost)
            finally:
                client.close()
                server.close()
                answers.join()

    def _pass_on(self, client: Peer, server: Peer, is_lost: threading.Event) -> None:
        batch = b""
        while True:
            for kind, message in client.receive():
                batch += message
                if kind in b"PBDE":  # to be continued, up to Sync
                    continue
                if self._is_to_be_lost(batch):
                    is_lost.set()
                    self._lose(batch, server)
                    raise Lost
                server.send(batch)
                batch = b""

    def _is_to_be_lost(self, batch: bytes) -> bool:
        with self._lock:
            if not self.trigger or self.trigger not in batch:
                return False
            if not self.keeps_losing:
                self.trigger = b""
            self.lost += 1
            return True

    def _lose(self, batch: bytes, server: Peer) -> None:
        if self.when == HALFWAY:
            server.send(batch[: len(batch) // 2])
        elif self.when == AFTER:
            server.send(batch + _message(b"X", b""))  # which it does before it says goodbye
            gone = select.poll()
            gone.register(server.socket, select.POLLRDHUP)
            gone.poll()


def _relay(server: Peer, client: Peer, is_lost: threading.Event) -> None:
    """Pass on what the server says, until the connection is lost; it is read all the same."""
    with suppress(Lost):
        while True:
            for _, message in server.receive():
                if not is_lost.is_set():
                    client.send(message)


@contextmanager
def losing(place: PostgresPlace) -> Iterator[tuple[LosingProxy, PostgresPlace]]:
    """A proxy to a place, and the place by way of it."""
    proxy = LosingProxy(place)
    with _listening(proxy._serve) as folder:
        yield proxy, _through(place, folder)


# ----------------------------------------------------------------------------------------- pooling


@dataclass
class TransactionPooler:
    """Hands each transaction to the next of its server connections, and resets none of them."""

    connections: list[psycopg.Connection[Any]]
    backends: list[Peer]
    pids: list[int]
    served: list[int] = field(default_factory=list)
    _free: list[int] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self._free.extend(range(len(self.backends)))

    def _serve(self, client: Peer) -> None:
        with suppress(Lost):
            client.startup()
            client.send(_welcome(self.connections[0]))
            while True:
                first = client.receive()
                with self._backend() as server:
                    self._transact(client, server, first)
        client.close()

    @contextmanager
    def _backend(self) -> Iterator[Peer]:
        """The one that was used longest ago, for one transaction."""
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            number = self._free.pop(0)
            self.served.append(self.pids[number])
        try:
            yield self.backends[number]
        finally:
            with self._changed:
                self._free.append(number)
                self._changed.notify()

    @staticmethod
    def _transact(client: Peer, server: Peer, messages: list[Message]) -> None:
        """Pass on both ways until the server is outside of a transaction and owes no answer."""
        owed = 0
        while True:
            owed += sum(kind in (SYNC, QUERY) for kind, _ in messages)
            server.send(b"".join(message for kind, message in messages if kind != b"X"))
            if any(kind == b"X" for kind, _ in messages):
                raise Lost
            messages = []
            ready, _, _ = select.select([client.socket, server.socket], [], [])
            if server.socket in ready:
                for kind, message in server.receive():
                    client.send(message)
                    owed -= kind == READY
                    if kind == READY and message[-1:] == b"I" and owed == 0:
                        return
            if client.socket in ready:
                messages = client.receive()


@contextmanager
def pooling(
    place: PostgresPlace, size: int = 2
) -> Iterator[tuple[TransactionPooler, PostgresPlace]]:
    """A pooler in transaction mode to a place, and the place by way of it."""
    connections = [_connect(place) for _ in range(size)]
    backends = [_socket_of(each) for each in connections]
    pids = [each.info.backend_pid for each in connections]
    pooler = TransactionPooler(connections, backends, pids)
    try:
        with _listening(pooler._serve) as folder:
            yield pooler, _through(place, folder)
    finally:
        for each in connections:
            each.close()
        for backend in backends:
            backend.close()
