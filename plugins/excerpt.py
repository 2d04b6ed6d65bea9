"""Excerpt: text of any length in bounded memory, its head and its tail kept and the cut between them marked."""

CUT = "\n[... {cut:,} bytes cut ...]\n"
CUT_MAX_BYTES = 64  # room for the mark


class Excerpt:
    """Takes pieces of text; `text()` is all of them, or head, mark and tail in at most `bytes_max` bytes of UTF-8.

    Memory is at most twice `bytes_max` and one piece. No character is split. `size` is what was taken, in bytes.
    """

    __slots__ = ("_head", "_head_max", "_tail", "_tail_max", "bytes_max", "size")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.size = bytes_max, 0
        self._head_max = max(0, bytes_max - CUT_MAX_BYTES) // 2
        self._tail_max = bytes_max - self._head_max
        self._head, self._tail = bytearray(), bytearray()

    def add(self, text: str) -> None:
        """Take one more piece."""
        data = text.encode("utf-8", "replace")
        self.size += len(data)
        room = self._head_max - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_max:
            del self._tail[: -self._tail_max]

    def text(self) -> str:
        """What was taken, cut in the middle if it is longer than `bytes_max`."""
        if self.size <= self.bytes_max:
            return (self._head + self._tail).decode()
        head = bytes(self._head).decode("utf-8", "ignore")
        tail = bytes(self._tail[-max(1, self._tail_max - CUT_MAX_BYTES) :]).decode("utf-8", "ignore")
        return head + CUT.format(cut=self.size - len(head.encode()) - len(tail.encode())) + tail
