"""How values are read: as literals, from text and from YAML."""

from pathlib import Path

import numpy as np
import pytest

from recbole_ext import Config, InputError, run_recbole
from recbole_ext.tuning.space import read_space
from recbole_ext.utils.literals import parse_literal, read_yaml, to_builtin


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5), ("-1", -1), ("1e-3", 0.001), ("2.5", 2.5), ("True", True), ("true", True), ("FALSE", False),
        ("[5, 10]", [5, 10]), ("[sin, log]", ["sin", "log"]), ("(0, 1)", (0, 1)),
        ("{'LS': 'valid_and_test'}", {"LS": "valid_and_test"}), ("{max_norm: 5.0}", {"max_norm": 5.0}),
        ("None", None), ("none", None), ("~", None), ("null", None), ("", None), ("  ", None),
        ("SASRec", "SASRec"), ("a b", "a b"), ("007", "007"), ("[5,inf)", "[5,inf)"), ("'None'", "None"),
        ("1+2", "1+2"), ("2**3", "2**3"), ("print", "print"), ("[x for x in y]", ["x for x in y"]),
        ("[" * 999, "[" * 999), (f"[{'9' * 5000}, x]", f"[{'9' * 5000}, x]"),
    ],
)  # fmt: skip
def test_a_text_is_read_as_a_literal_or_stays_a_text(text, value):
    read = parse_literal(text)
    assert read == value
    assert type(read) is type(value)


def marker_code(path: Path) -> list[str]:
    return [
        f"__import__('pathlib').Path({str(path)!r}).touch()",
        f"[__import__('pathlib').Path({str(path)!r}).touch()]",
        f"{{'a': __import__('os').system('touch {path}')}}",
        f"open({str(path)!r}, 'w').close()",
    ]


@pytest.mark.parametrize("way", ["argv", "config_dict", "file"])
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("key", ["topk", "eval_args", "checkpoint_dir_suffix", "learner"])
def test_code_in_a_value_is_never_run(tmp_path, way, number, key):
    marker = tmp_path / "marker"
    text = marker_code(marker)[number]
    argv, keys, files = [], {}, None
    if way == "argv":
        argv = [f"--{key}={text}"]
    elif way == "config_dict":
        keys = {key: text}
    else:
        (tmp_path / "keys.yaml").write_text(f"{key}: {text}\n", encoding="utf-8")
        files = [str(tmp_path / "keys.yaml")]
    with pytest.raises(InputError):
        run_recbole("MEANTIME", "ml-100k", files, keys, argv=argv)
    assert not marker.exists()


@pytest.mark.parametrize(
    "tag",
    ["!!python/object/apply:os.system ['touch marker']", "!!python/name:os.system", "!!python/tuple [1, 2]", "!mine 5"],
)
def test_tags_in_yaml_are_refused(tmp_path, tag):
    (tmp_path / "keys.yaml").write_text(f"epochs: {tag}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"keys.yaml line 1 is not plain YAML"):
        read_yaml("keys.yaml")
    assert not (tmp_path / "marker").exists()


TAGGED = ['!!int ""', "!!bool maybe", "!!timestamp soon", "!!float x", "!!null x", "!!binary a", "!!str 5", "!!set {a}",
          "!!omap [a: 1]", "!!map 5", "!!seq 5", "! 5", "!mine [1]", "!!python/tuple [1]", "&a !!int 5"]  # fmt: skip


@pytest.mark.parametrize("value", TAGGED)
def test_an_explicit_tag_is_one_sentence_wherever_a_value_is_read(tmp_path, value):
    for name, text, place in (
        ("keys.yaml", f"seed: 1\nepochs: {value}\n", "config file keys.yaml line 2"),
        ("keys.yaml", f"a:\n  - {{b: {value}}}\n", "config file keys.yaml line 2"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError) as caught:
            read_yaml(name)
        assert str(caught.value).startswith(f"{place} is not plain YAML: it has the tag '!")
        assert str(caught.value).endswith("'; write the value without a tag.")
    with pytest.raises(InputError, match=r"is not plain YAML: it has the tag '!.*; write the value without a tag"):
        parse_literal(f"[{value}]")
    with pytest.raises(InputError, match=r"key 'topk': .* is not plain YAML: it has the tag '!"):
        Config("MEANTIME", "ml-100k", argv=[f"--topk=[{value}]"])
    (tmp_path / "space.yaml").write_text(f"n_layers: {{choice: [{value}]}}")
    with pytest.raises(InputError, match=r"search space space.yaml line 1 is not plain YAML: it has the tag '!"):
        read_space("space.yaml", "MEANTIME")
    (tmp_path / "hyper.test").write_text(f"\nn_layers choice [{value}]")
    with pytest.raises(InputError, match=r"search space hyper.test line 2: .* it has the tag '!"):
        read_space("hyper.test", "MEANTIME")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("base: &b {x: 1, y: 2}\nown: {<<: *b, y: 3}", {"base": {"x": 1, "y": 2}, "own": {"x": 1, "y": 3}}),
        ("a: &n 5\nb: *n", {"a": 5, "b": 5}), ("a: &l [1, 2]\nb: *l", {"a": [1, 2], "b": [1, 2]}),
        ("a: &x {p: 1}\nb: &y {q: 2}\nc: {<<: [*x, *y]}", {"a": {"p": 1}, "b": {"q": 2}, "c": {"p": 1, "q": 2}}),
        ("a: =", {"a": "="}), ("a: 2020-01-01", {"a": "2020-01-01"}),
    ],
)  # fmt: skip
def test_anchors_aliases_and_merge_keys_work(tmp_path, text, value):
    (tmp_path / "keys.yaml").write_text(text)
    assert read_yaml("keys.yaml") == value


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: *missing", 1), ("a: 1\nb: {<<: 5}", 2), ("a: 1\nb: &x [*x]", 2), ("a: &x {b: *x}", 1),
        ("a: 1\n---\nb: 2", 2),
        ("\n".join(["a0: &a0 [1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))]), 1),
        ("%FOO 1\n%YAML 9.9\n---\na: 1", 2), ("a: !nope!x 1", 1), ("a: 1\n\tb: 2", 2),
    ],
)  # fmt: skip
def test_yaml_that_means_nothing_is_one_sentence(tmp_path, text, line):
    (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(InputError, match=f"config file keys.yaml line {line} is not plain YAML") as caught:
        read_yaml("keys.yaml")
    assert "\n" not in str(caught.value)


def test_yaml_numbers_are_those_of_python(tmp_path):
    lines = [
        "a: 1e-3",
        "b: 10",
        "c: 007",
        "d: 2020-01-01",
        "e: 1:30",
        "f: -.5",
        "g: ~",
        "h: [1, x]",
        "i: 1_000",
        "j: 0",
    ]
    (tmp_path / "keys.yaml").write_text("\n".join(lines), encoding="utf-8-sig")
    assert read_yaml("keys.yaml") == {
        "a": 0.001, "b": 10, "c": "007", "d": "2020-01-01", "e": "1:30", "f": -0.5, "g": None, "h": [1, "x"], "i": 1000,
        "j": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a: [1", r"keys.yaml line \d is not plain YAML"),
        (b"- 1\n- 2", "holds a list; it should hold `key: value` lines"),
        (b"just words", "holds a str"),
        (b"\xff\xfe\x00a", "is not plain YAML"),
        (b"a: 1\nb: 'x\x00y'\n", r"keys.yaml line 2 holds the character U\+0000, which YAML does not allow"),
        (b"{[1]: 2, {3: 4}: 5}", "is not plain YAML"),
        (b"a: 1\nb: 2\na: 3\n", "keys.yaml line 3 is not plain YAML: key 'a' appears twice"),
        (b"a: {b: 1, b: 2}\n", "line 1 is not plain YAML: key 'b' appears twice"),
        (b"a: " + b"[" * 5000, "is nested too deeply"),
    ],
)
def test_a_file_that_is_no_yaml_of_keys_is_refused(tmp_path, content, sentence):
    (tmp_path / "keys.yaml").write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read_yaml("keys.yaml")


def test_a_missing_file_and_a_folder_are_refused_and_an_empty_file_is_fine(tmp_path):
    with pytest.raises(InputError, match="nowhere.yaml cannot be read: No such file"):
        read_yaml("nowhere.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        read_yaml(str(tmp_path))
    with pytest.raises(InputError, match="cannot be read: embedded null"):
        read_yaml("a\0b")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert read_yaml("empty.yaml") == {}


def test_plain_values_are_what_json_and_yaml_know():
    value = {"a": np.float64(0.5), "b": (1, np.int64(2)), 3: {None}, "c": np.array([1, 2]), "d": Path("x")}
    assert to_builtin(value) == {"a": 0.5, "b": [1, 2], "3": [None], "c": [1, 2], "d": "x"}
    assert type(to_builtin(value)["a"]) is float
