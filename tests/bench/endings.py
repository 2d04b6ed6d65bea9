"""`python -m tests.bench.endings`: how long it takes to end 5,000 idle and 500 busy sessions, and a tree of agents.

Prints times and receipts, and fails when anything is left or a log is not whole.
"""

import argparse
import asyncio

from tests.host.crowds import close_many, interrupt_tree
from tests.host.test_crowds import hard, soft


def main() -> None:
    """All three, one after the other."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--idle", type=int, default=5_000)
    options.add_argument("--busy", type=int, default=500)
    options.add_argument("--shells", type=int, default=20)
    given = options.parse_args()
    ended = asyncio.run(close_many(given.idle, given.busy, shells=given.shells, shutdown_s=10.0))
    print(f"closing {given.idle:,} idle and {given.busy:,} busy sessions: {ended.seconds:.2f} s, left {ended.left}")
    print(f"  ends {dict(ended.ends)}; before {ended.before}; after {ended.after}")
    assert ((), ended.before) == (ended.left, ended.after)
    for name, body in (("plain", soft), ("stubborn", hard)):
        seen = asyncio.run(interrupt_tree(body))
        print(f"interrupting a root with {seen.agents} agents, {name} tools at its leaves: {seen.seconds * 1e3:.0f} ms")
        print(f"  receipts {dict(seen.receipts)}; the last was asked after {seen.asked_s * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
