"""`python -m tests.fuzz [--minutes 30] [--seed 0] [--part data|histories|keys|checkpoints]`.

Prints the cases by part and outcome, and each kind of finding once with the smallest example of it. Exits with 1 if
there is any.
"""

import argparse
import collections
import contextlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: more threads only wait for each other

import hypothesis

from tests.fuzz import checkpoints, data, histories, keys
from tests.fuzz.judging import Finding

PARTS = {"data": data, "histories": histories, "keys": keys, "checkpoints": checkpoints}

ROUND = 60  # cases of one part before the next part
SHRINKING = 20.0  # seconds that making one example smaller may take


class Enough(KeyboardInterrupt):
    """Ends a round at once; hypothesis takes any other exception for a failure of the test."""


@dataclass
class Fuzzer:
    """Runs one part, and goes on after findings.

    Attributes:
        outcomes: how many cases had each outcome.
        findings: the smallest example of each kind of finding, and its message.
    """

    name: str
    outcomes: collections.Counter = field(default_factory=collections.Counter)
    findings: dict[str, tuple[str, str]] = field(default_factory=dict)

    def round(self, seed: int, until: float) -> None:
        """Try some cases; a new kind of finding ends the round, once its example is small."""
        part = PARTS[self.name]
        sought: str | None = None  # the kind of finding whose example is being made smaller
        end = until

        def one(case: Any) -> None:
            nonlocal sought, end
            if time.monotonic() > end:
                raise Enough
            try:
                outcome = part.check(case)
            except Finding as finding:
                self.outcomes["finding"] += sought is None
                new = finding.key not in self.findings
                if new:
                    print(f"{self.name}: {finding.key}\n{case!r}\n{finding.detail}\n", file=sys.stderr, flush=True)
                if new or finding.key == sought or len(repr(case)) < len(self.findings[finding.key][0]):
                    self.findings[finding.key] = repr(case), finding.detail
                if sought is None and new:
                    sought, end = finding.key, time.monotonic() + SHRINKING
                if finding.key == sought:
                    raise
            else:
                self.outcomes[outcome] += sought is None

        test = hypothesis.given(part.strategy())(one)
        test = hypothesis.settings(
            max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink], print_blob=False, report_multiple_bugs=False,
        )(hypothesis.seed(seed)(test))  # fmt: skip
        with contextlib.suppress(Finding, Enough, hypothesis.errors.Flaky):
            test()


def report(fuzzers: list[Fuzzer], write: Callable[[str], Any] = print) -> int:
    """Write the counts and the findings; returns the exit status."""
    for fuzzer in fuzzers:
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(fuzzer.outcomes.items()))
        write(f"{fuzzer.name}: {fuzzer.outcomes.total():,} cases: {counts}")
    write(f"all: {sum(fuzzer.outcomes.total() for fuzzer in fuzzers):,} cases")
    kinds = [(fuzzer.name, key, *found) for fuzzer in fuzzers for key, found in sorted(fuzzer.findings.items())]
    for part, key, case, detail in kinds:
        write(f"\n--- {part}: {key}\n{case}\n{detail}")
    write(f"\n{len(kinds)} kinds of findings")
    return 1 if kinds else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", choices=sorted(PARTS))
    options = parser.parse_args(argv)
    logging.getLogger().addHandler(logging.NullHandler())  # a program that has set up logging keeps its own way
    until = time.monotonic() + 60 * options.minutes
    fuzzers = [Fuzzer(name) for name in ([options.part] if options.part else PARTS)]
    seed, before = options.seed * 1_000_000, os.getcwd()
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:  # hypothesis, too, writes below the working directory
        os.chdir(folder)
        while time.monotonic() < until:
            for fuzzer in fuzzers:
                fuzzer.round(seed, until)
            seed += 1
        os.chdir(before)
    return report(fuzzers)


if __name__ == "__main__":
    sys.exit(main())
