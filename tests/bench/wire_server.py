"""A provider on this machine, as a program of its own: it streams one answer to whoever asks, and says where."""

import sys
from typing import Any

from tests.sse_server import Answer, Piece, in_pieces, sse_server
from tests.wires import WIRES, Spoken

DELTA_CHARS = 7  # what one event of an answer holds


def main(wire: str, deltas: int, pieces: int, pause_s: float) -> None:
    """Serve until standard input ends."""
    body = WIRES[wire].events(Spoken(text="a word " * deltas), 1)
    cuts = range(len(body) // pieces, len(body), max(1, len(body) // pieces))
    answer: Any = Answer(pieces=tuple(Piece(one.body, pause_s) for one in in_pieces(body, *cuts)))
    with sse_server([answer]) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
