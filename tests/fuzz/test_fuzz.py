"""A few cases of each part, the same ones every time; `python -m tests.fuzz` tries as many as there is time for."""

import time
import types

import hypothesis
import pytest
from hypothesis import strategies as st

from recbole_ext import InputError
from tests.fuzz.__main__ import PARTS, Fuzzer, report
from tests.fuzz.judging import Finding, attempt, limited

pytestmark = pytest.mark.slow

EXAMPLES = {"data": 80, "histories": 50, "keys": 50, "checkpoints": 40}


@pytest.mark.parametrize("part", PARTS)
def test_every_outcome_is_right_or_one_sentence(part):
    outcomes = set()

    @hypothesis.settings(
        max_examples=EXAMPLES[part], derandomize=True, deadline=None, database=None, print_blob=False,
        phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(PARTS[part].strategy())
    def cases(case):
        outcomes.add(PARTS[part].check(case))

    cases()
    assert {"right", "refused"} <= outcomes


@pytest.mark.parametrize(
    ("error", "key"),
    [
        (InputError(""), "sentence: more or less than one"),
        (InputError("something is wrong."), "sentence: names nothing"),
        (KeyError("class"), "KeyError in no file of recbole_ext"),
    ],
)
def test_anything_else_is_a_finding(error, key):
    def fail():
        raise error

    with pytest.raises(Finding) as finding:
        attempt(fail, ["toy"])
    assert finding.value.key == key


def test_a_case_without_end_is_a_finding():
    @limited(0.1)
    def endless():
        while True:
            pass

    with pytest.raises(Finding, match="no end"):
        endless()


def test_a_finding_is_reported_once_with_its_smallest_example(monkeypatch, capsys):
    def check(number):
        if number >= 10:
            raise Finding("too large", "")
        return "right"

    part = types.SimpleNamespace(strategy=lambda: st.integers(0, 1000), check=check)
    monkeypatch.setitem(PARTS, "numbers", part)
    fuzzer = Fuzzer("numbers")
    for seed in range(2):
        fuzzer.round(seed, time.monotonic() + 60)
    assert {key: case for key, (case, _) in fuzzer.findings.items()} == {"too large": "10"}
    assert report([fuzzer]) == 1
    assert capsys.readouterr().out.count("too large") == 1
