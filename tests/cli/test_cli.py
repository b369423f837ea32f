"""The command line: arguments, exit status, what it prints and what it writes."""

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import recbole_ext
from recbole_ext.cli import entry as cli
from recbole_ext.cli.entry import main
from recbole_ext.cli.run import config_files, table, write_json
from recbole_ext.errors import InputError
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.literals import parse_arguments

SMALL = [
    "--epochs=1", "--train_batch_size=16", "--show_progress=False", "--use_gpu=False", "--MAX_ITEM_LIST_LENGTH=8",
    "--topk=[5]", "--valid_metric=NDCG@5", "--hidden_size=16", "--inner_size=16", "--n_layers=1",
]  # fmt: skip


pytestmark = pytest.mark.usefixtures("no_waiting")


@pytest.fixture
def call(capsys):
    """Run the command line; returns its exit status, output and errors."""

    def call(*argv: str) -> tuple[int, str, str]:
        status = main(list(argv))
        caught = capsys.readouterr()
        assert "Traceback" not in caught.err or status == 1
        return status, caught.out, caught.err

    return call


@pytest.fixture
def toy(write_events, random_events) -> list[str]:
    """Arguments that make a small run on the toy data set."""
    return ["--dataset=toy", f"--data_path={write_events(random_events())}", *SMALL]


# ---------------------------------------------------------------- arguments


def test_keys_and_values_are_split_at_the_first_sign_of_equality_or_at_the_blank():
    words = ["--a=1", "--b", "2", "--c=x=y=z", "--d", "-1", "--e=", "--f", "--g", "a b", "--a", "1"]
    expected = {"a": "1", "b": "2", "c": "x=y=z", "d": "-1", "e": "", "f": True, "g": "a b"}
    assert parse_arguments(words) == expected
    assert words[0] == "--a=1"


@pytest.mark.parametrize(
    "words", [["x"], ["-e", "5"], ["--"], ["--=5"], ["--a=1", "b"], ["—epochs=1"], ["--a", "1", "2"]]
)
def test_words_that_are_no_keys_are_refused_or_left_to_the_host_program(words):
    with pytest.raises(InputError, match="is not understood; write --key=value"):
        parse_arguments(words)
    assert set(parse_arguments(words, strict=False)) <= {"a"}


def test_one_key_with_two_values_is_refused():
    with pytest.raises(InputError, match="--a is given twice, as '1' and as '2'"):
        parse_arguments(["--a=1", "--a", "2"])
    assert parse_arguments(["--a=1", "--a=2"], strict=False) == {"a": "2"}


# ---------------------------------------------------------------- exit status


def test_help_and_version(call):
    for argv in (["--help"], ["-h"], ["run", "--help"], ["--model=SASRec", "--help"]):
        status, out, _ = call(*argv)
        assert status == 0
        assert out.startswith("usage: recbole-ext")
        assert "--model" in out
    assert call("--version") == (0, f"recbole_ext {recbole_ext.__version__}\n", "")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "no model is named; give --model, one of MEANTIME"),
        (["--model"], "--model has no value; give it the name of a model"),
        (["--model=meantime"], "did you mean 'MEANTIME'?"),
        (["--modle=MEANTIME"], "no model is named, but there is a key 'modle'; did you mean 'model'?"),
        (["--save_dataset=True"], "no model is named; give --model, one of MEANTIME"),
        (["export", "--checkpiont=a.pth", "--out=a.pt2"], "no option --checkpiont; did you mean --checkpoint?"),
        (["walk"], "there is no command 'walk'; commands: run"), (["recomend"], "did you mean recommend?"),
        (["run", "walk"], "argument 'walk' is not understood"),
        (["tune", "--model=MEANTIME", "--nproc=2"], "nproc is 2, but this command or program runs in one"),
        (["--model=MEANTIME", "--epochs=-1"], "key 'epochs' is -1"),
        (["--model=MEANTIME", "--epochs"], "--epochs has no value; it should be a whole number"),
        (["--model=MEANTIME", "--checkpoint_dir"], "--checkpoint_dir has no value; it should be a text"),
        (["--model=MEANTIME", "--lerning_rate=1"], "did you mean 'learning_rate'?"),
        (["--model=MEANTIME", "--epochs=1", "--epochs=2"], "given twice"),
        (["--model=MEANTIME", "--dataset"], "--dataset has no value; give it the name of a data set"),
        (["--model=MEANTIME", "--dataset=nowhere"], "data set 'nowhere' was not found"),
        (["--model=MEANTIME", "--data_path=."], "data_path is given without a data set; name it with --dataset"),
        (["--model=MEANTIME", "--saved=5"], "--saved is '5'; it should be True or False"),
        (["--model=MEANTIME", "--config_files=nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["--model=MEANTIME", "--config_files"], "--config_files has no value; give it file names"),
        (["--model=MEANTIME", "--config_files='a"], "should be file names"),
        (["--model=MEANTIME", "--json"], "--json has no value"), (["--model=MEANTIME", "--json=."], "--json is '.'"),
        (["--model=MEANTIME", "--json="], "--json has no value"),
        (["--model=MEANTIME", "--json=file/x.json"], "--json cannot be written to"),
        (["--model=MEANTIME", "--checkpoint_dir=file"], "checkpoints cannot be written to"),
        (["--model=MEANTIME", "--topk=2000", "--valid_metric=MRR@2000"], "topk is 2000, but the data set has only"),
    ],
)  # fmt: skip
def test_a_wrong_request_ends_with_status_2_and_one_sentence(call, argv, sentence):
    Path("file").touch()
    status, out, err = call(*argv)
    assert status == 2
    assert out == ""
    assert sentence in err
    (line,) = [line for line in err.splitlines() if line.startswith("recbole-ext: ")]
    assert line == err.splitlines()[-1]


def test_an_interruption_ends_with_status_130(call, monkeypatch):
    def interrupt(*args, **keys):
        raise KeyboardInterrupt

    monkeypatch.setattr("recbole_ext.quick_start.run_recbole", interrupt)
    status, _, err = call("--model=MEANTIME")
    assert status == 130
    assert err == "recbole-ext: interrupted\n"


def test_a_failure_while_running_ends_with_status_1(call, monkeypatch):
    for error, shows in ((RuntimeError("odd"), True), (OSError(28, "No space left on device", "a.pth"), False)):

        def fail(*args, error=error, **keys):
            raise error

        monkeypatch.setattr("recbole_ext.quick_start.run_recbole", fail)
        status, _, err = call("--model=MEANTIME")
        assert status == 1
        assert f"recbole-ext: failed while running: {error}" in err
        assert ("Traceback" in err) == shows  # a full disk is nothing to look up in the program


# ---------------------------------------------------------------- a run


def test_a_run_prints_a_table_and_writes_what_it_prints(call, toy):
    status, out, err = call("run", "--model=MEANTIME", *toy, "--json", "out/result.json")
    assert status == 0, err
    result = json.loads(Path("out/result.json").read_text())
    lines = out.splitlines()
    assert lines[0].split() == ["metric", "valid", "test"]
    for name in ("recall@5", "ndcg@5"):
        (row,) = [line.split() for line in lines if line.startswith(name)]
        assert row[1:] == [f"{result[part][name]:.4f}" for part in ("best_valid_result", "test_result")]
    assert lines[-1] == f"checkpoint: {result['checkpoint']}"
    assert os.path.isfile(result["checkpoint"])
    assert result["config"]["model"] == "MEANTIME"
    assert result["config"]["epochs"] == 1
    assert set(result["versions"]) >= {"recbole_ext", "recbole", "torch"}
    assert os.listdir("out") == ["result.json"]


def test_the_result_may_be_printed_for_scripts(call, toy):
    status, out, err = call(
        "--model=Pop", *(word for word in toy if "size=16" not in word and "layers" not in word), "--json=-"
    )
    assert status == 0, err
    result = json.loads(out)
    assert result["config"]["model"] == "Pop"
    assert set(os.listdir()) == {"data", "saved", "log", "log_tensorboard"}


def test_keys_may_come_from_several_files_and_the_command_line_wins(call, toy, monkeypatch):
    Path("a.yaml").write_text("epochs: 7\nseed: 1\ndataset: other")
    Path("b c.yaml").write_text("seed: 2\nlearning_rate: 0.5\ndataset: toy")
    seen = {}
    monkeypatch.setattr("recbole_ext.quick_start.create_dataset", lambda config: seen.update(config.to_dict()) or 1 / 0)
    argv = [word for word in toy if not word.startswith("--dataset")]
    assert call("--model=MEANTIME", "--config_files=a.yaml 'b c.yaml'", *argv, "--learning_rate", "0.25")[0] == 1
    assert (seen["epochs"], seen["seed"], seen["learning_rate"], seen["dataset"]) == (1, 2, 0.25, "toy")


@pytest.mark.parametrize(
    ("given", "files"),
    [
        ("a.yaml", ["a.yaml"]), ("a.yaml b.yaml", ["a.yaml", "b.yaml"]), ("my folder/b c.yaml", ["my folder/b c.yaml"]),
        ("'my folder/b c.yaml' a.yaml", ["my folder/b c.yaml", "a.yaml"]),
        ('a.yaml "my folder/b c.yaml"', ["a.yaml", "my folder/b c.yaml"]), ("back\\slash.yaml", ["back\\slash.yaml"]),
        ("a.yaml back\\slash.yaml", ["a.yaml", "back\\slash.yaml"]), ("it's.yaml", ["it's.yaml"]),
        ("['a.yaml', 'my folder/b c.yaml']", ["a.yaml", "my folder/b c.yaml"]), ("[odd].yaml", ["[odd].yaml"]),
        ("BST-clicks a.yaml", ["BST-clicks", "a.yaml"]), ("BST-clicks", ["BST-clicks"]),
        ("missing.yaml", ["missing.yaml"]), (" a.yaml  b.yaml ", ["a.yaml", "b.yaml"]),
    ],
)  # fmt: skip
def test_config_files_may_have_blanks_backslashes_and_quotes_in_their_names(given, files):
    Path("my folder").mkdir()
    for name in ("a.yaml", "b.yaml", "my folder/b c.yaml", "back\\slash.yaml", "it's.yaml", "[odd].yaml"):
        Path(name).touch()
    assert config_files(given) == files


def test_a_name_with_blanks_among_several_is_refused_without_quotes(call):
    Path("a.yaml").touch()
    Path("b c.yaml").touch()
    status, _, err = call("--model=MEANTIME", "--config_files=a.yaml b c.yaml")
    assert status == 2
    assert "--config_files names 'b', which does not exist; a name with blanks needs its own quotes" in err


VALUES = {
    "run": ("model", "dataset", "config_files", "json", "per_user", "resume", "epochs", "topk", "learner",
            "log_dir", "nproc"),
    "tune": ("model", "dataset", "config_files", "json", "space", "storage_path", "num_samples", "scheduler",
             "search_alg", "grace_period", "time_budget", "keep_checkpoints", "cpus_per_trial", "gpus_per_trial",
             "max_concurrent", "address", "epochs"),
    "recommend": ("checkpoint", "histories", "data_path", "out", "k", "at", "items", "users", "item_names",
                  "device"),
    "explain": ("checkpoint", "histories", "user", "item", "at", "item_names", "report", "out", "json", "device"),
    "export": ("checkpoint", "out", "device"),
}  # fmt: skip


@pytest.mark.parametrize(("command", "option"), [(name, option) for name in VALUES for option in VALUES[name]])
def test_an_option_without_its_value_is_refused(call, command, option):
    model = [] if option == "model" or command not in ("run", "tune") else ["--model=MEANTIME"]
    for argv in ([f"--{option}"], [f"--{option}", "--show_progress=False"]):
        status, out, err = call(command, *model, *(argv if command in ("run", "tune", "recommend") else argv[:1]))
        assert (status, out) == (2, "")
        assert err.startswith(f"recbole-ext: --{option} has no value; ")
        assert err.count("\n") == 1


def test_every_option_of_the_commands_is_in_the_table_above():
    for name, options in VALUES.items():
        declared = set(importlib.import_module(f"recbole_ext.cli.{name}").parser.validators)
        keys = {"epochs", "topk", "learner", "log_dir"} if name in ("run", "tune") else set()
        assert declared == set(options) - keys


def test_the_model_may_come_from_a_file(call, toy):
    Path("a.yaml").write_text("model: Pop\nmetrics: [Recall]\nvalid_metric: Recall@5")
    keys = [word for word in toy if "size=1" not in word and "layers" not in word and "metric" not in word]
    status, out, err = call("--config_files=a.yaml", "--saved=False", *keys, "--json=r.json")
    assert status == 0, err
    assert json.loads(Path("r.json").read_text())["config"]["model"] == "Pop"
    assert "checkpoint" not in out
    assert os.listdir("saved") == []


def test_ml_100k_is_the_data_set_if_none_is_named(call, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "recbole_ext.quick_start.run_recbole", lambda model, dataset, *_, **__: seen.append(dataset) or 1 / 0
    )
    Path("a.yaml").write_text("dataset: 2023")
    call("--model=MEANTIME")
    call("--model=MEANTIME", "--config_files=a.yaml")
    call("--model=MEANTIME", "--config_files=a.yaml", "--dataset=007")
    assert seen == ["ml-100k", "2023", "007"]


@pytest.mark.slow
def test_the_command_is_a_process_whose_log_has_plain_numbers(toy):
    folder = Path(recbole_ext.__file__).parents[1]
    command = [sys.executable, "-m", "recbole_ext", "--model", "MEANTIME", *toy]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.split()[:3] == ["metric", "valid", "test"]
    (log,) = Path("log/MEANTIME").iterdir()
    for text in (done.stderr, log.read_text()):
        assert "test result" in text
        assert "np.float64" not in text


def test_the_status_is_that_of_the_process(monkeypatch):
    for argv, status in (["--model=NOPE"], 2), (["--version"], 0):
        monkeypatch.setattr(sys, "argv", ["recbole-ext", *argv])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("recbole_ext", run_name="__main__")
        assert ended.value.code == status


# ---------------------------------------------------------------- the report


RESULT = {
    "best_valid_score": -float("inf"),
    "best_valid_result": None,
    "test_result": {"ndcg@5": 0.25},
    "checkpoint": None,
}


def test_json_is_valid_where_numbers_are_not_finite_or_numpys():
    import numpy as np

    write_json({**RESULT, "more": [float("nan"), np.float64(0.5), np.int64(3), {"a": (1, None)}]}, "r.json")

    def refuse(name):
        raise AssertionError(name)

    read = json.loads(Path("r.json").read_text(), parse_constant=refuse)
    assert read["best_valid_score"] is None
    assert read["more"] == [None, 0.5, 3, {"a": [1, None]}]


def test_json_replaces_the_file_before_whole_or_not_at_all(monkeypatch):
    Path("r.json").write_text("before")
    endless: list = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        write_json({**RESULT, "more": endless}, "r.json")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write_json(RESULT, "r.json")
    assert Path("r.json").read_text() == "before"
    assert os.listdir() == ["r.json"]


def test_the_table_has_a_row_for_every_metric_of_either_kind_of_data():
    text = table({**RESULT, "best_valid_result": {"auc": 0.5}, "checkpoint": "a.pth"})
    assert [line.split() for line in text.splitlines() if "@" in line or "auc" in line] == [
        ["auc", "0.5000"],
        ["ndcg@5", "0.2500"],
    ]
    assert text.endswith("checkpoint: a.pth")
    assert "ndcg@5" in table({**RESULT, "test_result": {"ndcg@5": 1.0}, "best_valid_result": {}})


@pytest.mark.parametrize("error", [MemoryError("no memory"), RuntimeError("can't allocate memory"), OSError("full")])
def test_what_no_traceback_explains_is_one_sentence(call, monkeypatch, error):
    def run(argv):
        raise error

    monkeypatch.setattr("recbole_ext.cli.entry._command", run)
    assert call() == (1, "", f"recbole-ext: failed while running: {error}\n")


def test_an_error_that_merely_mentions_memory_keeps_its_traceback(call, monkeypatch):
    def run(argv):
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr("recbole_ext.cli.entry._command", run)
    assert "Traceback" in call()[2]


def test_arguments_that_are_no_texts_are_refused(capsys):
    assert main([5]) == 2
    assert "there is no command '5'" in capsys.readouterr().err


def test_a_termination_in_the_middle_of_a_save_leaves_no_half_file_and_ends_with_143(call, monkeypatch, tmp_path):
    before = signal.getsignal(signal.SIGTERM)

    def run(argv):
        with write_whole("a.pth") as file:
            file.write(b"half")
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    monkeypatch.setattr("recbole_ext.cli.entry._command", run)
    assert call() == (143, "", "recbole-ext: terminated\n")
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_request_to_end_that_a_library_makes_an_error_of_is_still_one(monkeypatch, capsys):
    def save(*_):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            raise RuntimeError("unexpected pos 64 vs 0")  # as torch's writer of files does

    monkeypatch.setattr(cli, "_command", save)
    assert main([]) == 130
    assert capsys.readouterr().err == "recbole-ext: interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize("program", [["-m", "recbole_ext"], ["run_recbole_ext.py"]])
def test_ctrl_c_during_the_imports_is_no_traceback(program, tmp_path):
    (tmp_path / "pandas.py").write_text("raise KeyboardInterrupt\n")
    root = Path(recbole_ext.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, *program, "--model=MEANTIME"], cwd=root, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "")
