"""Errors inside RecBole are sentences; errors of this package, and lack of memory, are what they are."""

import sys
from types import ModuleType

import pytest

from recbole_ext.errors import InputError, SearchError, recbole_errors_as_input_error

THEIRS = """
def refuse(error): raise error
def fail(function): return function()
def import_missing(): import a_package_that_is_not_there
def check(value): assert value, "value should be true"
"""
OURS = """
def call(function): return function()
"""


def module(name: str, source: str) -> ModuleType:
    made = ModuleType(name)
    exec(source, made.__dict__)
    return made


theirs, ours = module("recbole.made", THEIRS), module("recbole_ext.made", OURS)


def said(function) -> str:
    with pytest.raises(InputError) as caught, recbole_errors_as_input_error("these keys"):
        ours.call(function)
    assert caught.value.__cause__ is not None or caught.value.args
    return str(caught.value)


@pytest.mark.parametrize("kind", [ValueError, KeyError, TypeError, NotImplementedError, RuntimeError, AssertionError])
def test_what_recbole_refuses_is_said_to_be_refused(kind):
    assert said(lambda: theirs.refuse(kind("no such\nthing."))).startswith("RecBole refuses these keys: ")
    assert "\n" not in said(lambda: theirs.refuse(ValueError("no such\nthing.")))


def test_an_assertion_of_recbole_is_a_refusal():
    assert said(lambda: theirs.check(False)) == "RecBole refuses these keys: value should be true."


def test_what_recbole_trips_over_is_told_with_the_place():
    sentence = said(lambda: theirs.fail(lambda: int("x")) if False else theirs.fail({}.popitem))
    assert sentence.startswith("RecBole fails on these keys, in fail of recbole.made (KeyError: ")


def test_a_package_that_recbole_misses_is_named():
    sentence = said(theirs.import_missing)
    assert sentence == "RecBole needs the package 'a_package_that_is_not_there' for these keys, which is not installed."


@pytest.mark.parametrize("error", [InputError("a sentence."), SearchError("none"), OSError(28, "full"), MemoryError()])
def test_errors_with_a_meaning_of_their_own_pass(error):
    with pytest.raises(type(error)) as caught, recbole_errors_as_input_error("these keys"):
        theirs.refuse(error)
    assert caught.value is error


def test_lack_of_memory_passes():
    with pytest.raises(RuntimeError, match="out of memory"), recbole_errors_as_input_error("these keys"):
        theirs.refuse(RuntimeError("CUDA out of memory"))


@pytest.mark.parametrize("kind", [ValueError, KeyError, TypeError, RuntimeError])
def test_a_bug_of_this_package_keeps_its_traceback_also_when_recbole_calls_it(kind):
    bug = module("recbole_ext.bug", "def bug(error): raise error")
    for call in (ours.call, theirs.fail):
        with pytest.raises(kind) as caught, recbole_errors_as_input_error("these keys"):
            call(lambda: bug.bug(kind("a bug")))
        assert not isinstance(caught.value, InputError)


def test_a_bug_in_an_override_is_no_mistake_of_the_user(monkeypatch):
    from recbole_ext import Config
    from recbole_ext.config import columns

    monkeypatch.setattr(columns, "resolve_columns", lambda *_: {}["bug"])
    monkeypatch.setitem(sys.modules, "recbole_ext.config.columns", columns)
    with pytest.raises(KeyError, match="bug"):
        Config("MEANTIME", "ml-100k", argv=[])


@pytest.mark.parametrize("value", ["a\nb", "a\r\nb", "a\u2028b", "a\n"])
def test_a_sentence_has_one_line_whatever_a_value_holds(value):
    sentence = f"key 'topk' is '{value}'; it should be a number."
    assert len(str(InputError(sentence)).splitlines()) == 1
