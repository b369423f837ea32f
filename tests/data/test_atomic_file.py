"""Atomic files: read as RecBole reads them, refused in one sentence where they cannot be right."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import recbole
from recbole.data.dataset import SequentialDataset
from recbole.utils import FeatureType

from recbole_ext import Config, InputError
from recbole_ext.data.event_log_dataset import EventLogDataset
from recbole_ext.data.files import parsing
from recbole_ext.data.files.atomic_file import read_atomic, refuse_padding

ML_100K = Path(recbole.__file__).parent / "dataset_example" / "ml-100k"
HEADER = "user_id:token\titem_id:token\ttimestamp:float\n"


@pytest.fixture(params=["whole", "in blocks"])
def read(tmp_path, request, monkeypatch):
    """Write a file from text or bytes and read it, as a small file and as a large one."""
    if request.param == "in blocks":
        monkeypatch.setattr(parsing, "PARSED_AT_ONCE", 1)  # byte: each line is a block

    def read_content(content: str | bytes, **keys):
        path = tmp_path / "x.inter"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_atomic(str(path), **{"separator": "\t", "seq_separator": " ", "compact": True, **keys})

    return read_content


def rows(content) -> list[list]:
    return content.frame.astype(object).where(content.frame.notna(), None).to_numpy().tolist()


# -------------------------------------------------------------------- what is read


@pytest.mark.parametrize("at_once", [2**25, 30_000])  # bytes; the second splits each file
@pytest.mark.parametrize("suffix", ["inter", "user", "item"])
def test_frames_equal_those_that_recbole_reads(suffix, at_once, monkeypatch):
    monkeypatch.setattr(parsing, "PARSED_AT_ONCE", at_once)
    columns = {"inter": "*", "user": "*", "item": "*"}
    keys = {"load_col": columns, "data_path": str(ML_100K), "use_gpu": False}
    config = Config("SASRec", "ml-100k", None, keys, argv=[])
    frames, facts = [], []
    for kind in (SequentialDataset, EventLogDataset):
        dataset = kind(config)
        source = {"inter": "inter_feat", "user": "user_feat", "item": "item_feat"}[suffix]
        frames.append(getattr(dataset, source).drop(columns="timestamp", errors="ignore"))
        facts.append((dataset.field2type, dataset.field2source, dataset.field2seqlen, dataset.field2bucketnum))
        facts[-1] += (list(dataset.field2id_token["item_id"]), list(dataset.field2id_token["user_id"]))
    assert facts[0] == facts[1]
    stock, ours = frames
    assert list(stock) == list(ours)
    assert len(stock) == len(ours)
    for name in stock:
        if isinstance(stock[name].iloc[0], np.ndarray):
            assert all(map(np.array_equal, stock[name], ours[name]))
        else:
            assert stock[name].tolist() == ours[name].tolist()


def test_the_three_ways_to_read_ml_100k_as_text_agree():
    for path in sorted(ML_100K.glob("ml-100k.[iu]*")):
        table = read_atomic(str(path), "\t", " ")
        plain = pd.read_csv(path, sep="\t", engine="python", dtype=str, keep_default_na=False)
        assert [f"{name}:{kind.value}" for name, kind in table.types.items()] == list(plain)
        for name, kind in table.types.items():
            ours, theirs = table.frame[name], plain[f"{name}:{kind.value}"]
            if kind == FeatureType.TOKEN_SEQ:
                assert [list(row) for row in ours] == [text.split() for text in theirs]
            elif kind == FeatureType.FLOAT:
                assert ours.dtype == np.float64
                assert ours.tolist() == theirs.astype(float).tolist()
            else:
                assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    "content",
    [
        HEADER + "a\tx\t1\nb\ty\t2\n",
        HEADER + "a\tx\t1\nb\ty\t2",  # no line end at the end
        HEADER + "a\tx\t1\nb\ty\t2\n\n\n  \n",
        HEADER + "\na\tx\t1\n \n\nb\ty\t2\n",
        (HEADER + "a\tx\t1\nb\ty\t2\n").replace("\n", "\r\n"),
        (HEADER + "a\tx\t1\nb\ty\t2").replace("\n", "\r\n"),
        (HEADER + "a\tx\t1\nb\ty\t2\n").replace("\n", "\r"),
        "\ufeff" + HEADER + "a\tx\t1\nb\ty\t2\n",
        ("\ufeff" + HEADER + "a\tx\t1\nb\ty\t2\n").replace("\n", "\r\n"),
        HEADER + 'a\t"x"\t1\n"b"\ty\t"2"\n',
        HEADER + "a\tx\t 1\nb\ty\t2.0 \n",
    ],
    ids=repr,
)
def test_line_ends_byte_order_marks_blank_lines_and_csv_quotes_do_not_matter(content, read):
    assert rows(read(content)) == [["a", "x", 1.0], ["b", "y", 2.0]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1", "cp1252"])
def test_files_in_the_encoding_that_is_said(encoding, read):
    content = (HEADER + "zoë\tx\t1\r\nb\tÿ\t2\r\n").encode(encoding)
    assert rows(read(content, encoding=encoding)) == [["zoë", "x", 1.0], ["b", "ÿ", 2.0]]


def test_tokens_are_text_whatever_they_look_like(read):
    tokens = [
        "NA", "None", "nan", "null", "N/A", "NULL", "inf", "2023", "007", "1e5", "0x1F", "True", "-", " ", "#", "'",
        "1,5", "日本", "😀", "e\u0301", "a b", "a:b", "9" * 40, "\u2028", "\x85", "\x1d", "[pad]", "-1",
    ]  # fmt: skip
    table = read(HEADER + "".join(f"{token}\tx{token}\t1\n" for token in tokens))
    assert table.frame["user_id"].tolist() == tokens
    assert table.frame["item_id"].tolist() == ["x" + token for token in tokens]


@pytest.mark.parametrize(
    "tokens",
    [
        ['"Heroes'],
        ['12" vinyl'],
        ['"Weird Al" Yankovic', '"'],
        ['"a', 'b"'],
        ['"a', "b", '"c', "d"],
        ['x"', '"', '""', '"y'],
    ],
    ids=str,
)
def test_a_quote_without_its_pair_is_a_character_and_swallows_no_line(tokens, read):
    lines = "".join(f"u\t{token}\t{number}\n" for number, token in enumerate(tokens))
    assert rows(read(HEADER + lines)) == [["u", token, number] for number, token in enumerate(tokens)]


def test_quotes_are_those_of_csv_in_a_file_written_as_csv(tmp_path):
    frame = pd.DataFrame({"item_id:token": ["a", "b", "c"], "title:token": ['Say "hi"', "with\ttab", "plain"]})
    frame.to_csv(tmp_path / "x.item", sep="\t", index=False)
    assert rows(read_atomic(str(tmp_path / "x.item"), "\t", " ")) == frame.to_numpy().tolist()


def test_a_quoted_field_of_ten_thousand_characters_or_of_a_million(read):
    for size in (10_000, 1_000_000):
        table = read(HEADER + f'u\t"{"x" * size}\t1\nv\ty\t2\n')
        assert [len(token) for token in table.frame["item_id"]] == [size + 1, 1]


def test_missing_tokens_and_numbers_are_missing_and_missing_sequences_empty(read):
    header = "a:token\tb:float\tc:token_seq\td:float_seq\n"
    table = read(header + "\t\t\t\nx\t1\tp  q\t1 2.5\ny\tNaN\t\t3\nz\tnull\tr\t\n")
    assert table.frame["a"].isna().tolist() == [True, False, False, False]
    assert table.frame["b"].isna().tolist() == [True, False, True, True]
    assert [row.tolist() for row in table.frame["c"]] == [[], ["p", "q"], [], ["r"]]
    assert [row.tolist() for row in table.frame["d"]] == [[], [1.0, 2.5], [3.0], []]


def test_numbers_are_read_exactly(read):
    texts = [
        "0.1",
        "1600000000123",
        "-5",
        "+7",
        "1e3",
        "944272509.611178002",
        "9007199254740991",
        "4.35",
        "1e-300",
        " 3 ",
    ]
    table = read("a:token\tb:float\n" + "".join(f"x\t{text}\n" for text in texts))
    assert table.frame["b"].tolist() == [float(text) for text in texts]


@pytest.mark.parametrize("separator", [",", ";", " ", "|", "::", "||", "\\t", "<>"])
def test_any_separator_will_do(separator, read):
    content = (HEADER + "a\tx.y\t1\n*\ty\t2\n").replace("\t", separator)
    assert rows(read(content, separator=separator)) == [["a", "x.y", 1.0], ["*", "y", 2.0]]


@pytest.mark.parametrize("token", ["\x1f", "a\x1eb", "\x1f\x1e\x1d"])
def test_control_characters_are_parts_of_tokens_beside_a_separator_of_two_characters(token, read):
    content = (HEADER + f"{token}\tx\t1\n").replace("\t", "::")
    assert rows(read(content, separator="::")) == [[token, "x", 1.0]]


def test_columns_are_chosen_by_name(read):
    content = "a:token\tb:float\tc:float\n1\tno number\t3\n"
    assert list(read(content, load={"c", "a"}).types) == ["a", "c"]
    assert list(read(content, unload={"b"}).types) == ["a", "c"]
    assert read(content, unload={"a", "b", "c"}).types == {}


# -------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", r"x\.inter is empty; it should begin with a header"),
        (b"\n \n", r"x\.inter is empty; it should begin with a header"),
        (b"\xef\xbb\xbf", r"x\.inter is empty; it should begin with a header"),
        (HEADER, r"x\.inter has only a header"),
        (HEADER + "\n\r\n", r"x\.inter has only a header"),
        ("user_id\titem_id\n1\t2\n", r"line 1: header field 'user_id' should be name:type with a type of token, float"),
        ("x" * 500 + "\n1\n", r"line 1: header field 'x{80}\.\.' should be name:type"),
        ("user_id:int\n1\n", r"line 1: header field 'user_id:int' should be name:type"),
        (":token\n1\n", r"line 1: header field ':token' should be name:type"),
        ("\n" + HEADER + "a\tx\t1\n", r"line 1: header field '' should be name:type"),
        ("a:token:float\n1\n", r"line 1: header field 'a:token:float' should be name:type"),
        (HEADER.replace("\t", ","), r"line 1: header field 'user_id:token,item_id.*' should be.*'\\t' between"),
        ("a:token\ta:float\n1\t2\n", r"line 1: column 'a' appears twice"),
        (HEADER + "a\tx\t1\na\tx\n", r"line 3 has 2 fields; the header has 3"),
        (HEADER + "a\tx\na\tx\t1\n", r"line 2 has 2 fields; the header has 3"),
        (HEADER + "a\tx\t1\n\nb\ty\t2\t3\n", r"line 4 has 4 fields; the header has 3"),
        (HEADER + "a\tx\t1\t9\nb\ty\n", r"line 2 has 4 fields; the header has 3"),
        (HEADER + "a\tx\t1\t\n", r"line 2 has 4 fields; the header has 3"),
        (HEADER + "a,x,1\n", r"line 2 has 1 field; the header has 3"),
        (HEADER + '"a\nb"\tx\t1\n', r"line 2 has 1 field; the header has 3"),
        (HEADER + "a\tx\t1\na\ty\tnoon\nb\tz\tnight\n", r"line 3 \(and 1 more\): timestamp is 'noon'; it should"),
        (HEADER + "a\tx\tNaN\na\tx\t\na\ty\tnoon\n", r"line 4: timestamp is 'noon'; it should be a number"),
        (HEADER + "\n\na\tx\t1\n\na\ty\tnoon\n", r"line 6: timestamp is 'noon'; it should be a number"),
        (HEADER + "a\tx\t1\na\ty\t2020-01-01\n", r"line 3: .* '2020-01-01'; it should be a number, as 1577836800, the"),
        (HEADER + "a\tx\t2020-01-01T00:00:01\n", r"line 2: .*; it should be a number, as 1577836801, the"),
        (HEADER + "a\tx\t01/02/2020\n", r"line 2: .*; it should be a number, of a date the seconds since 1970"),
        (HEADER + "a\tx\t1-2-3-4\n", r"line 2: timestamp is '1-2-3-4'; it should be a number\."),
        (HEADER + "a\tx\t1,5\n", r"line 2: timestamp is '1,5'; it should be a number"),
        (HEADER + "a\tx\t1_000\n", r"line 2: timestamp is '1_000'; it should be a number"),
        (HEADER + "a\tx\tinf\n", r"line 2: timestamp is 'inf'; it should be a finite number"),
        (HEADER + "a\tx\t1\na\tx\t-Infinity\n", r"line 3: timestamp is '-inf'; it should be a finite number"),
        ("a:token\tb:float_seq\nx\t1 2\ny\t1 two\n", r"line 3: b is '1 two'; all should be finite numbers"),
        ("a:token\tb:float_seq\nx\t1 nan\n", r"line 2: b is '1 nan'; all should be finite numbers"),
        (HEADER.encode() + "a\tx\t1\nzoë\ty\t2\n".encode("latin-1"), r"line 3 is not utf-8 text; set encoding"),
        ((HEADER + "a\tx\t1\n").encode("utf-16"), r"line 1 is not utf-8 text; set encoding"),
        (HEADER + "a\tx\t1\nb\0\ty\t2\n", r"line 3 has a NUL character"),
        ((HEADER + "a\tx\t1\n").encode("utf-16-le"), r"line 1 has a NUL character; set encoding"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_file_that_is_no_table_is_refused_in_one_sentence_with_its_place(content, sentence, read, tmp_path):
    with pytest.raises(InputError, match=sentence) as refusal:
        read(content)
    message = str(refusal.value)
    assert str(tmp_path / "x.inter") in message
    assert "\n" not in message
    assert message.endswith(".")


def test_sequences_need_a_separator_of_their_own(read):
    with pytest.raises(InputError, match=r"x.inter: column 'b' .* seq_separator and field_separator are both ' '"):
        read("a:token b:token_seq\nx 1\n", separator=" ")
    assert len(read("a:token b:token\nx 1\n", separator=" ").frame) == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            HEADER + "a\tx\t1\na\t[PAD]\t1\n",
            r"x.inter line 3: item_id is '\[PAD\]'; that token is reserved for padding",
        ),
        ("a:token\tb:token_seq\nx\t1 [PAD]\n", r"x.inter line 2: b is '1 \[PAD\]'; that token is reserved for padding"),
    ],
)
def test_the_token_of_the_padding_is_refused_by_its_place(content, sentence, read):
    with pytest.raises(InputError, match=sentence):
        refuse_padding(read(content))


def test_a_column_that_is_asked_for_and_missing_is_named_with_those_there_are(read):
    with pytest.raises(
        InputError, match=r"x\.inter has no column 'time'; its columns are user_id, item_id, timestamp\."
    ):
        read(HEADER + "a\tx\t1\n", load={"user_id", "time"})


def test_a_file_that_cannot_be_read_and_an_unknown_encoding(read, tmp_path):
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_atomic(str(tmp_path), "\t", " ")
    for encoding in ("utf-99", "punycode", "idna", "rot13", "hex", "utf-8\0"):
        with pytest.raises(InputError, match=r"encoding is '.*', which cannot decode .*; try utf-8|is not \w+ text"):
            read("ä" + HEADER, encoding=encoding)


@pytest.mark.parametrize("token", ['"', '"a', '"a""'])
def test_a_quote_that_is_never_closed_is_a_character(token, read):
    assert rows(read(HEADER + f"a\tx\t1\n{token}\ty\t2\n"))[1][0] == token
    reversed_header = "timestamp:float\titem_id:token\tuser_id:token\n"
    assert rows(read(reversed_header + f"1\tx\ta\n2\ty\t{token}\n"))[1][2] == token
    assert rows(read(reversed_header + f"1\tx\ta\n2\ty\t{token}"))[1][2] == token
