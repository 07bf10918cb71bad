"""A TCP proxy that can lose what the other side answered, and can be gone."""

import contextlib
import socket
import threading
from typing import Final, Self

_CHUNK: Final = 1 << 16


class LossyProxy:
    """Passes bytes on, until `lose` (the next answer is read and thrown away, and the connection broken) or `down`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.address: tuple[str, int] = self._server.getsockname()
        self.lose = threading.Event()
        self.down = threading.Event()
        self.lost = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Break every connection."""
        for each in list(self._open):
            _close(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self.down.is_set():
                _close(client)
                continue
            server = socket.create_connection(self._target, timeout=10)
            server.settimeout(None)
            self._open |= {client, server}
            for source, sink, answers in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, sink, answers), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(_CHUNK):
                if answers and self.lose.is_set():
                    self.lose.clear()
                    self.lost += 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                _close(each)
                self._open.discard(each)


def _close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
