"""Stand between a client and a server: pass bytes on, or cut, or stall, and come back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

_AWAY_SECONDS = 0.02


class Forwarder:
    """Listen on a port of its own and pass all that comes on to a server, until told otherwise.

    Attributes:
        port: where clients connect to; the same for its whole life.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_cut = False
        self._answers_left: int | None = None
        self.port = 0

    async def start(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break every connection at once, what is under way in them is lost; let none in until `restore`."""
        self._is_cut = True
        self._flowing.set()
        self._abort_all()

    def stall(self) -> None:
        """Pass nothing on until `restore`; connections stay open, and new ones find nobody who speaks."""
        self._flowing.clear()

    def cut_once_at(self, answer: int) -> None:
        """Cut in place of passing on what the server sends for the `answer`th time from now, and come back soon."""
        self._answers_left = answer

    @property
    def is_armed(self) -> bool:
        """Tell whether the cut that was asked for is still to come."""
        return self._answers_left is not None

    def restore(self) -> None:
        """Pass everything on again, what came in the meantime first."""
        self._is_cut = False
        self._flowing.set()

    async def close(self) -> None:
        """Break everything and stop listening."""
        self.cut()
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*self._links, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self._is_cut:
            writer.transport.abort()
        link = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection both ways to its end."""
        ends = [writer]
        try:
            await self._flowing.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            ends.append(far_writer)
            self._writers.add(far_writer)
            if self._is_cut:
                return
            await asyncio.gather(
                self._pump(reader, far_writer), self._pump(far_reader, writer, self._answered)
            )
        except OSError:
            pass  # the server is away, or one side broke: the other side learns it below
        finally:
            for end in ends:
                end.transport.abort()
                self._writers.discard(end)
            for end in ends:
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    def _answered(self) -> None:
        if self._answers_left is None:
            return
        self._answers_left -= 1
        if self._answers_left <= 0:
            self._answers_left = None
            self.cut()
            asyncio.get_running_loop().call_later(_AWAY_SECONDS, self.restore)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        while data := await reader.read(1 << 16):
            await self._flowing.wait()
            before()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # one side has ended: so does the other

    def _abort_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
