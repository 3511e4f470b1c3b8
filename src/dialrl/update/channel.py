"""Lines of JSON between the process that runs a pipeline and the processes that train: what to do, and how it went.

Over a socket in a folder that only this user can enter. A closed socket means that the other side is gone: training
processes then end at once, so none outlives the run it belongs to. Not here: what the commands mean.
"""

import json
import os
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Message = dict[str, Any]


class Channel:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8")
        self._sending = threading.Lock()

    @classmethod
    def connect(cls, place: Path) -> "Channel":
        """The end of a process that was told where to report."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(place))
        return cls(connection)

    def send(self, message: Message) -> None:
        """Send one message. Raises OSError when the other side is gone."""
        with self._sending:
            self._connection.sendall((json.dumps(message) + "\n").encode())

    def messages(self) -> Iterator[Message]:
        """What the other side sends, until it is gone."""
        try:
            for line in self._lines:
                yield json.loads(line)
        except (OSError, ValueError):  # closed while reading, or in the middle of a line
            return

    def close(self) -> None:
        """Tell the other side that this one is gone."""
        with suppress(OSError):  # the other side was faster
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def listening(place: Path) -> socket.socket:
    """A socket at ``place`` that channels connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(place))
    listener.listen()
    return listener


def commands_or_end(channel: Channel) -> "queue.Queue[Message]":
    """Messages as they come; when the other side is gone this process ends at once, whatever it is doing."""
    commands: queue.Queue[Message] = queue.Queue()

    def read() -> None:
        for message in channel.messages():
            commands.put(message)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return commands
