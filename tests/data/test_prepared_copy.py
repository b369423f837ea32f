"""A prepared copy gives what the files give, and never anything else."""

import errno
import json
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from recbole_ext import create_dataset, data_preparation
from recbole_ext.data import prepared_copy
from recbole_ext.data.files import checked_files
from recbole_ext.data.prepared_copy import MAGIC, MOST_COPIES

COLUMNS = ("user_id:token", "item_id:token", "timestamp:float", "rating:float")
KEYS = {"load_col": {"inter": ["user_id", "item_id", "timestamp", "rating"], "item": ["item_id", "brand", "tags"]}}


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(prepared_copy, "LEAST_BYTES", 0)
    monkeypatch.setattr(prepared_copy, "LARGE_ARRAY", 64)


@pytest.fixture
def path(write_events, write_lines, random_events):
    """Events, and items with features; returns `data_path`."""
    events = [(*event, number % 5) for number, event in enumerate(random_events())]
    path = write_events(events, COLUMNS)
    lines = (f"i{number}\tb{number % 3}\t{' '.join(f't{tag}' for tag in range(number % 4))}" for number in range(20))
    write_lines("item", "item_id:token\tbrand:token\ttags:token_seq", *lines)
    return path


@pytest.fixture
def start(make_config, path, monkeypatch):
    """Make the data set as a new process would; returns it and whether the files were read."""

    def start(model="MEANTIME", **keys):
        read = []
        first = checked_files.read_atomic
        with monkeypatch.context() as patch:
            patch.setattr(
                checked_files, "read_atomic", lambda *args, **keys: read.append(args[0]) or first(*args, **keys)
            )
            data = create_dataset(make_config(model, data_path=path, **{**KEYS, **keys}))
        return data, bool(read)

    return start


def copies(path):
    return sorted(Path(path, "toy").glob(".toy.*.prepared"))


def batches(data):
    """All columns of all batches, split and drawn."""
    torch.manual_seed(0)
    loaders = data_preparation(data.config, data)
    return [
        {name: part[name].clone() for name in part.columns}
        for loader in loaders
        for batch in loader
        for part in [batch if not isinstance(batch, (list, tuple)) else batch[0]]
    ]


@pytest.mark.parametrize(
    ("model", "keys"),
    [
        ("MEANTIME", {}), ("SASRec", {}), ("BST", {"history": "positive", "threshold": {"rating": 3}}),
        ("LightSANs", {"eval_args": {"split": {"RS": [0.6, 0.2, 0.2]}}, "tie_break": "item"}),
    ],
)  # fmt: skip
def test_the_second_start_gives_what_the_first_gave(start, path, model, keys):
    first, read = start(model, **keys)
    assert read
    assert len(copies(path)) == 1
    second, read = start(model, **keys)
    assert not read
    assert second.digest == first.digest
    assert second.time_origin == first.time_origin
    assert str(second) == str(first)
    assert {name: list(tokens) for name, tokens in second.field2id_token.items()} == {
        name: list(tokens) for name, tokens in first.field2id_token.items()
    }
    for one, other in zip(batches(first), batches(second), strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize(
    ("keys", "reads"),
    [
        ({"learning_rate": 0.5, "hidden_size": 32, "epochs": 7, "train_batch_size": 3, "topk": [3]}, False),
        ({"eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}}}, False), ({"train_window": 5}, False),
        ({"MAX_ITEM_LIST_LENGTH": 7}, True), ({"tie_break": "item"}, True), ({"time_unit": "ms"}, True),
        ({"val_interval": {"rating": "[1,inf)"}}, True), ({"user_inter_num_interval": "[4,inf)"}, True),
        ({"normalize_all": False}, True), ({"load_col": {"inter": ["user_id", "item_id", "timestamp"]}}, True),
        ({"min_history": 2}, False), ({"threshold": {"rating": 2}}, True), ({"seq_len": {"tags": 1}}, True),
        ({"item_names": "brand"}, True), ({"LIST_SUFFIX": "_past"}, True), ({"data_cache": False}, True),
    ],
)  # fmt: skip
def test_every_key_that_matters_makes_another_copy(start, keys, reads):
    start()
    assert start()[1] is False
    assert start(**keys)[1] is reads
    assert start()[1] is False


def test_another_model_with_other_examples_makes_another_copy(start):
    start("MEANTIME")
    assert start("SASRec")[1]
    assert not start("MEANTIME")[1]


def change_events(path):
    file = Path(path, "toy", "toy.inter")
    stat = file.stat()
    text = file.read_text()
    file.write_text(text.replace("\ti1\t", "\ti2\t", 1))
    assert file.stat().st_size == stat.st_size
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # neither size nor time says that it has changed


def change_items(path):
    file = Path(path, "toy", "toy.item")
    file.write_text(file.read_text().replace("b1", "b7"))


def add_users(path):
    Path(path, "toy", "toy.user").write_text("user_id:token\tage:float\nu1\t30\n")


@pytest.mark.parametrize("change", [change_events, change_items, add_users])
def test_a_changed_or_new_file_is_read(start, path, change):
    start()
    change(path)
    data, read = start()
    assert read
    assert data.digest == start(data_cache=False)[0].digest


def test_a_file_that_changes_while_it_is_read_gets_no_copy(start, path, monkeypatch):
    first = prepared_copy._reads_noted

    def changing(config):
        change_events(path)
        return first(config)

    monkeypatch.setattr(prepared_copy, "_reads_noted", changing)
    start()
    assert not copies(path)


def test_other_versions_and_other_code_make_another_copy(start, monkeypatch):
    start()
    monkeypatch.setattr(prepared_copy, "versions", lambda: {"recbole_ext": "9"})
    assert start()[1]


def test_off_by_a_key_and_for_small_data(start, path, monkeypatch):
    start(data_cache=False)
    assert not copies(path)
    monkeypatch.setattr(prepared_copy, "LEAST_BYTES", 10**6)
    start()
    assert not copies(path)


def cut(data):
    return data[:-1]


def grow(data):
    return data + b"x"


def empty(data):
    return b""


def wrong_header(data):
    return data.replace(b'"sizes"', b'"seizs"')


def wrong_pickle(data):
    header = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    place = len(MAGIC) + 8 + header + 200
    return data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :]


def wrong_array(data):
    return data[:-200] + bytes([data[-200] ^ 1]) + data[-199:]


def wrong_length(data):
    place = len(MAGIC) + 6
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def nested_header(data):
    text = b"[" * 200_000
    return MAGIC + len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "damage", [cut, grow, empty, wrong_header, wrong_pickle, wrong_array, wrong_length, nested_header]
)
def test_a_damaged_copy_is_read_from_the_files_and_replaced(start, path, damage):
    start()
    (copy,) = copies(path)
    copy.write_bytes(damage(copy.read_bytes()))
    assert start()[1]
    assert not start()[1]


def test_a_copy_from_elsewhere_runs_no_code(start, path, tmp_path):
    class Harmful:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    start()
    (copy,) = copies(path)
    data = copy.read_bytes()
    begin = len(MAGIC) + 8
    header = json.loads(data[begin : begin + int.from_bytes(data[len(MAGIC) : begin], "little")])
    content = pickle.dumps(Harmful())
    header |= {"content": prepared_copy._content_digest([memoryview(content)]), "sizes": [len(content)]}
    text = json.dumps(header).encode()
    head = MAGIC + len(text).to_bytes(8, "little") + text
    copy.write_bytes(head + bytes(-len(head) % prepared_copy.ALIGNMENT) + content)
    assert start()[1]
    assert not (tmp_path / "harm").exists()


def test_without_space_training_goes_on(start, path, monkeypatch, caplog):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file)

    monkeypatch.setattr(prepared_copy, "write_whole", full)
    with caplog.at_level(logging.WARNING):
        data, _ = start()
    assert len(batches(data))
    assert "no prepared copy for the next start" in caplog.text
    assert "No space left on device" in caplog.text
    assert not copies(path)


def test_changes_of_one_process_do_not_reach_the_file(start, path):
    start()
    (copy,) = copies(path)
    before = copy.read_bytes()
    data, _ = start()
    items = data.inter_feat["item_id"].to_numpy()
    items[:] = 0
    assert not data.inter_feat["item_id"].any()
    assert copy.read_bytes() == before
    assert start()[0].inter_feat["item_id"].any()


def test_the_log_says_the_same(start, caplog):
    with caplog.at_level(logging.INFO):
        start()
        first = [message for message in caplog.messages if "prepared copy" not in message]
        caplog.clear()
        start()
    assert [message for message in caplog.messages if "prepared copy" not in message] == first
    assert any(message.startswith("Data: read from the prepared copy") for message in caplog.messages)
    assert any("events of 30 users" in message for message in first)


def test_the_log_is_complete_after_a_quiet_start(start, caplog):
    with caplog.at_level(logging.WARNING):
        start()
    with caplog.at_level(logging.INFO):
        caplog.clear()
        start()
    assert any("events of 30 users" in message for message in caplog.messages)


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("nowhere"), os.mkfifo, Path.mkdir])
def test_what_is_no_file_is_no_copy(start, path, make):
    make(Path(path, "toy", f".toy.{'0' * 16}.prepared"))
    start()
    assert not start()[1]


def test_data_sets_of_one_folder_keep_their_copies_apart(start, path):
    other = Path(path, "toy", f".toy.b.{'0' * 16}.prepared")
    other.write_bytes(b"of the data set toy.b")
    for length in range(3, 3 + MOST_COPIES + 2):
        start(MAX_ITEM_LIST_LENGTH=length)
    assert other.exists()


def test_a_moved_folder_keeps_its_copy(start, path, monkeypatch, make_config):
    start()
    moved = str(path) + "_moved"
    os.rename(path, moved)
    read = []
    monkeypatch.setattr(checked_files, "read_atomic", lambda *args, **keys: read.append(args))
    data = create_dataset(make_config("MEANTIME", data_path=moved, **KEYS))
    assert not read
    assert data.dataset_path == os.path.join(moved, "toy")


def test_a_data_set_that_cannot_be_copied_is_used(start, path, monkeypatch, caplog):
    def failing(self, data):
        raise pickle.PicklingError("cannot pickle this")

    monkeypatch.setattr(prepared_copy._Pickler, "dump", failing)
    with caplog.at_level(logging.WARNING):
        assert len(batches(start()[0]))
    assert "cannot pickle this" in caplog.text


def test_a_few_copies_are_kept(start, path):
    for length in range(3, 3 + MOST_COPIES + 3):
        start(MAX_ITEM_LIST_LENGTH=length)
    assert len(copies(path)) == MOST_COPIES
    assert not start(MAX_ITEM_LIST_LENGTH=length)[1]
    assert start(MAX_ITEM_LIST_LENGTH=3)[1]


def test_files_that_are_split_already(start, path):
    folder = Path(path, "toy")
    header, *lines = (folder / "toy.inter").read_text().splitlines()
    for number, part in enumerate(("train", "valid", "test")):
        (folder / f"toy.{part}.inter").write_text("\n".join([header, *lines[number::3]]) + "\n")
    keys = {"benchmark_filename": ["train", "valid", "test"]}
    first, read = start(**keys)
    assert read
    second, read = start(**keys)
    assert not read
    assert [len(part) for part in second.build()] == [len(part) for part in first.build()]


@pytest.mark.slow
def test_processes_that_start_together_all_succeed(path, tmp_path):
    program = f"""
from recbole_ext import Config, create_dataset
from recbole_ext.data import prepared_copy
prepared_copy.LEAST_BYTES = 0
keys = {{"data_path": {path!r}, "state": "warning", "use_gpu": False, "load_col": {KEYS["load_col"]!r}}}
for _ in range(20):
    print(create_dataset(Config("MEANTIME", "toy", None, keys, argv=[])).digest)
"""
    running = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        for _ in range(3)
    ]
    found = [process.communicate(timeout=600)[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len({digest for digests in found for digest in digests}) == 1
    assert len(copies(path)) == 1
    assert not list(Path(path, "toy").glob(".*part"))
