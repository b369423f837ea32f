"""Checkpoint files: whole, plain, refused when they are not what they should be."""

import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from recbole_ext import InputError
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.checkpoint.restore import load_weights
from recbole_ext.utils import random_state
from recbole_ext.utils.versions import versions

pytestmark = pytest.mark.slow


@pytest.fixture
def state() -> dict:
    return {
        "format": checkpoint.FORMAT, "model": "SASRec", "class": "recbole.SASRec", "tokens": {"item_id": ["[PAD]"]},
        "config": {"model": "SASRec", "dataset": "toy", "topk": [5], "nothing": None}, "other_parameter": {},
        "state_dict": {"weight": torch.arange(1000.0)}, "optimizer": {"state": {}}, "epoch": 3, "cur_step": 0,
        "best_valid_score": 0.5, "best_valid_result": {"ndcg@5": 0.5},
    }  # fmt: skip


class Payload:
    """An object whose unpickling makes a file."""

    def __init__(self, path: Path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def refuse(path, match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        checkpoint.load(path)
    assert "\n" not in str(caught.value)


def test_what_is_saved_is_loaded(state, tmp_path):
    checkpoint.save(state, "new/folder/a.pth")
    loaded = checkpoint.load("new/folder/a.pth")
    assert torch.equal(loaded["state_dict"].pop("weight"), state["state_dict"].pop("weight"))
    assert loaded == state
    assert os.listdir(tmp_path / "new" / "folder") == ["a.pth"]


def test_others_may_read_a_checkpoint_as_far_as_the_umask_lets_them(state):
    before = os.umask(0o022)
    try:
        checkpoint.save(state, "a.pth")
    finally:
        os.umask(before)
    assert os.stat("a.pth").st_mode & 0o777 == 0o644


@pytest.mark.parametrize("where", ["config", "state_dict", "tokens", "extra"])
def test_a_planted_payload_is_refused_and_does_not_run(state, tmp_path, where):
    payload = Payload(tmp_path / "marker")
    if where == "extra":
        state["extra"] = payload
    else:
        state[where]["payload"] = payload
    torch.save(state, "a.pth")
    refuse("a.pth", "a.pth contains pickled objects, which can run code")
    with open("b.pth", "wb") as file:
        pickle.dump({**state, "payload": payload}, file)
    refuse("b.pth", "not a checkpoint of recbole_ext")
    assert not (tmp_path / "marker").exists()


def test_the_payload_would_run_if_it_were_unpickled(tmp_path):
    pickle.loads(pickle.dumps(Payload(tmp_path / "marker")))
    assert (tmp_path / "marker").exists()


def test_every_flipped_bit_in_what_the_file_holds_is_noticed(state):
    checkpoint.save(state, "a.pth")
    whole = Path("a.pth").read_bytes()
    with zipfile.ZipFile("a.pth") as archive:
        entries = archive.infolist()
    generator = np.random.default_rng(0)
    for entry in entries:
        name, extra = np.frombuffer(whole[entry.header_offset + 26 : entry.header_offset + 30], dtype="<u2")
        begin = entry.header_offset + 30 + int(name) + int(extra)
        for place in generator.integers(begin, begin + entry.file_size, 3 if entry.file_size else 0):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(generator.integers(8))
            Path("b.pth").write_bytes(damaged)
            refuse("b.pth", "damaged")


@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.99])
def test_a_truncated_file_is_refused(state, share):
    checkpoint.save(state, "a.pth")
    whole = Path("a.pth").read_bytes()
    Path("b.pth").write_bytes(whole[: int(share * len(whole))])
    refuse("b.pth", "b.pth is not a checkpoint of recbole_ext, or it is damaged")


def test_files_of_another_kind_are_refused(tmp_path):
    Path("text.pth").write_text("hello\n")
    np.savez("array.npz", a=np.arange(3))
    with zipfile.ZipFile("empty.zip", "w"):
        pass
    for name in ("text.pth", "array.npz", "empty.zip"):
        refuse(name, "is not a checkpoint of recbole_ext, or it is damaged")
    refuse("nowhere.pth", "there is no checkpoint nowhere.pth")
    Path("reserved.pth").touch()
    refuse("reserved.pth", "reserved.pth is empty: its run ended before an epoch was saved; start the training again")
    refuse(tmp_path, "is a folder; name the checkpoint in it, a file that ends in .pth")
    for number, content in enumerate([torch.zeros(3), {"state_dict": {}}, [1], {"format": "new"}]):
        torch.save(content, f"{number}.pth")
        refuse(f"{number}.pth", "is not a checkpoint of recbole_ext, or it was edited: ")


def test_a_newer_format_and_a_lacking_part_are_refused(state):
    checkpoint.save({**state, "format": checkpoint.FORMAT + 1}, "a.pth")
    refuse(
        "a.pth", f"has format {checkpoint.FORMAT + 1}; this version reads up to {checkpoint.FORMAT}: update recbole_ext"
    )
    for key in state:
        checkpoint.save({name: value for name, value in state.items() if name != key}, "a.pth")
        refuse("a.pth", f"edited: {key} is missing")
        checkpoint.save({**state, key: [1]}, "a.pth")
        refuse("a.pth", rf"edited: {key} is \[1\]; it should be")
    checkpoint.save({**state, "config": {}}, "a.pth")
    refuse("a.pth", "config.model is missing")


# ---------------------------------------------------------------- writing


def test_a_crash_in_the_middle_of_writing_leaves_the_file_before_and_nothing_else(state, tmp_path, monkeypatch):
    checkpoint.save(state, "a.pth")
    before = Path("a.pth").read_bytes()

    for crash in (KeyboardInterrupt(), RuntimeError("crash"), SystemExit()):

        def half(values, file, crash=crash):
            file.write(b"half of it")
            raise crash

        monkeypatch.setattr(torch, "save", half)
        with pytest.raises(type(crash)):
            checkpoint.save({**state, "epoch": 4}, "a.pth")
        assert Path("a.pth").read_bytes() == before
        assert os.listdir(tmp_path) == ["a.pth"]


def test_a_full_disk_is_one_sentence_and_leaves_the_file_before(state):
    # a limit on the size of files acts as a full disk does, in the middle of writing
    code = (
        "import resource, signal, sys, torch\n"
        "from recbole_ext.checkpoint import file as checkpoint\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "state = {'a': torch.zeros(10_000)}\n"
        "checkpoint.save(state, 'a.pth')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "try: checkpoint.save(state, 'a.pth')\n"
        "except OSError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert "a.pth cannot be written: File too large" in done.stdout, done.stderr
    assert os.listdir() == ["a.pth"]
    assert os.path.getsize("a.pth") > 40_000


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(checkpoint.__file__).parents[2]), "OMP_NUM_THREADS": "1"}


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_process_killed_while_saving_leaves_a_whole_file():
    code = (
        "import torch\n"
        "from recbole_ext.checkpoint import file as checkpoint\n"
        "number = 0\n"
        "while True:\n"
        "    number += 1\n"
        "    checkpoint.save({'number': number, 'a': torch.full((300_000,), number)}, 'a.pth')\n"
        "    print(number, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment())
    for round in range(6):
        process.stdout.readline()
        os.kill(process.pid, signal.SIGSTOP)  # wherever it is
        state = torch.load("a.pth", weights_only=True)
        assert torch.equal(state["a"], torch.full((300_000,), state["number"]))
        if round < 5:
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.003 * round)
    process.kill()
    process.wait()
    with zipfile.ZipFile("a.pth") as archive:
        assert archive.testzip() is None


# ---------------------------------------------------------------- what a checkpoint keeps


def test_the_states_of_all_generators_are_plain_and_complete():
    import random

    states = random_state.capture()
    torch.save(states, "a.pth")
    states = torch.load("a.pth", weights_only=True)
    expected = random.random(), np.random.rand(3), torch.rand(3)
    random.setstate((states["python"]["version"], tuple(states["python"]["words"]), states["python"]["gauss"]))
    own = states["numpy"]
    np.random.set_state(("MT19937", own["keys"].numpy(), own["position"], own["has_gauss"], own["cached"]))
    torch.set_rng_state(states["torch"])
    assert random.random() == expected[0]
    assert np.array_equal(np.random.rand(3), expected[1])
    assert torch.equal(torch.rand(3), expected[2])


def test_weights_of_another_shape_are_refused(state):
    model = torch.nn.Linear(2, 2)
    model.other_parameter = dict
    with pytest.raises(InputError, match="does not fit Linear as configured: .*bias"):
        load_weights(model, state, "a.pth")


def test_weights_that_are_no_numbers_are_refused(state):
    state["state_dict"]["weight"][3] = float("nan")
    with pytest.raises(InputError, match="a.pth has values in 'weight' that are not finite"):
        load_weights(torch.nn.Linear(2, 2), state, "a.pth")


def test_what_the_model_does_not_keep_is_refused(state):
    class Model(torch.nn.Linear):
        def other_parameter(self):
            return {"counts": None}

    state["other_parameter"] = {"forward": 1}
    with pytest.raises(InputError, match="does not fit Model, which has no 'forward'"):
        load_weights(Model(2, 2), state, "a.pth")


def test_tokens_that_are_no_lists_and_paths_that_are_none_are_refused(state):
    checkpoint.save({**state, "tokens": {"item_id": 3}}, "a.pth")
    refuse("a.pth", "tokens.item_id is 3; it should be a list of different texts")
    refuse(None, "the checkpoint is None; it should be the path of a file")


def test_versions_name_what_a_result_depends_on():
    assert set(versions()) == {"recbole_ext", "recbole", "torch", "numpy", "pandas", "python"}
