"""A contender for the tests of the worker: it counts, sleeps, fails and leaves."""

import sys
import time


class Counter:
    """What a worker of these tests runs."""

    def __init__(self, start: int) -> None:
        self.total = start

    def add(self, more: int) -> int:
        print("a library that prints must not disturb the answers")
        self.total += more
        return self.total

    def sleep(self, seconds: float) -> int:
        time.sleep(seconds)
        return 1

    def fail(self) -> None:
        raise RuntimeError("this contender cannot do that")

    def leave(self) -> None:
        print("last words", file=sys.stderr, flush=True)
        sys.exit(3)
