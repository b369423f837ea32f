"""What processes tell each other, gradients that are summed, shares of batches, and sentences of refusal."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from recbole.data.interaction import Interaction

from recbole_ext import InputError, run_recbole
from recbole_ext.cli.run import number_of_processes
from recbole_ext.distributed import launcher, processes, restarts
from recbole_ext.distributed.gradients import LARGE, sum_gradients
from recbole_ext.distributed.share import Share, common_draws, count_terms, own_rows
from recbole_ext.errors import ProcessLost

# -------------------------------------------------------------------- communication


def exchange():
    rank = processes.rank()
    return {
        "largest": processes.largest(rank, -rank), "total": processes.total(rank, 0.5),
        "text": processes.text_of_first(f"file of {rank} ä"), "empty": processes.text_of_first(""),
        "gathered": torch.cat(processes.gathered(torch.full((rank, 2), rank))).tolist(),
    }  # fmt: skip


def test_all_processes_know_the_same(in_processes):
    results = in_processes(3, exchange)
    assert results[0] == {
        "largest": [2, 0], "total": [3, 1.5], "text": "file of 0 ä", "empty": "",
        "gathered": [[1, 1], [2, 2], [2, 2]],
    }  # fmt: skip
    assert results[1] == results[2] == results[0]


def test_alone_everything_is_the_identity():
    assert processes.largest(1, 2) == [1, 2]
    assert processes.gathered(torch.ones(1)) == [torch.ones(1)]
    assert processes.text_of_first("a") == "a"
    assert (processes.size(), processes.rank(), processes.is_first()) == (1, 0, True)


def test_a_lost_process_is_an_error_of_the_others_at_once(in_processes):
    def lose():
        processes.wait()
        if processes.rank() == 1:
            return os.getpid()  # leaves
        begin = time.monotonic()
        with pytest.raises(ProcessLost, match="another process has ended, or has not answered for 60 seconds"):
            processes.total(1)
        return time.monotonic() - begin

    seconds, _ = in_processes(2, lose)
    assert seconds < 30


def test_a_signal_during_the_import_of_torch_interrupts_the_run():
    code = """
import sys

class Torch:  # its import is interrupted; it cannot be imported a second time
    errors = iter([KeyboardInterrupt(), RuntimeError("only a single TORCH_LIBRARY can be registered")])

    def find_spec(self, name, *_):
        if name == "torch":
            raise next(self.errors)

from recbole_ext.cli.entry import main
assert "torch" not in sys.modules
sys.meta_path.insert(0, Torch())
sys.exit(main(["--model=MEANTIME"]))
"""
    several = {"RANK": "0", "WORLD_SIZE": "2", "RECBOLE_EXT_STORE": "never-opened"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **several})
    assert (done.returncode, done.stderr) == (130, "recbole-ext: interrupted\n")


def test_one_of_several_says_why_the_run_fails(in_processes):
    said = in_processes(3, processes.says_failure)
    assert sorted(said) == [False, False, True]


# -------------------------------------------------------------------- gradients


def test_gradients_are_summed_and_those_of_nobody_stay_away(in_processes):
    def summed():
        rank = processes.rank()
        table = torch.nn.Embedding(5, 2, sparse=True).weight
        large, small = torch.nn.Parameter(torch.zeros(LARGE)), torch.nn.Parameter(torch.zeros(2, 3))
        of_one, unused = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(3))
        fixed = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
        large.grad, small.grad = torch.full_like(large, rank + 1), torch.full_like(small, rank + 1)
        if rank == 1:
            of_one.grad = torch.ones(3)
            index = torch.tensor([[1, 4, 1]])
            table.grad = torch.sparse_coo_tensor(index, torch.ones(3, 2), (5, 2), check_invariants=False)
        sum_gradients([table, large, small, of_one, unused, fixed])
        assert unused.grad is None
        assert fixed.grad is None
        assert table.grad.is_sparse
        return [table.grad.to_dense(), large.grad.unique(), small.grad.unique(), of_one.grad]

    for result in in_processes(3, summed):
        assert [values.tolist() for values in result[1:]] == [[6.0], [6.0], [1.0, 1.0, 1.0]]
        assert result[0].tolist() == [[0, 0], [2, 2], [0, 0], [0, 0], [1, 1]]


# -------------------------------------------------------------------- shares


@pytest.mark.parametrize("examples", [1, 2, 7, 64])
def test_shares_are_the_whole_batch_and_differ_by_one_row_at_most(examples):
    for count in (1, 2, 3, 5):
        shares = [Share(examples, number, count, seed=0) for number in range(count)]
        rows = [row for share in shares if not share.is_empty for row in range(share.begin, share.end)]
        assert rows == list(range(examples))
        sizes = [0 if share.is_empty else share.end - share.begin for share in shares]
        assert max(sizes) - min(sizes) <= 1


def test_a_share_has_its_examples_with_their_negatives():
    batch = Interaction({"item": torch.arange(10), "user": torch.arange(5).repeat(2)})  # 5 examples and their negatives
    assert Share(5, 1, 2, 0).cut(batch)["item"].tolist() == [2, 3, 4, 7, 8, 9]
    assert Share(5, 1, 2, 0).cut(batch)["user"].tolist() == [2, 3, 4, 2, 3, 4]


def test_common_draws_are_those_of_a_single_process_and_others_are_not():
    torch.manual_seed(3)
    alone = [torch.rand(2).tolist(), torch.rand(2).tolist()]
    others = []
    for number in range(2):
        torch.manual_seed(3)
        drawn, share = [], Share(4, number, 2, seed=number)
        with share.computed():
            with common_draws():
                drawn.append(torch.rand(2).tolist())
            others.append(torch.rand(1).item())  # dropout
            (rows,) = own_rows(torch.arange(4))
            count_terms(9)
        with common_draws():
            drawn.append(torch.rand(2).tolist())
        assert drawn == alone
        assert rows.tolist() == [2 * number, 2 * number + 1]
        assert share.terms == 9
    assert others[0] != others[1]
    assert own_rows(torch.arange(4))[0].tolist() == [0, 1, 2, 3]


# -------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("model", "keys", "sentence"),
    [
        ("Pop", {}, "Pop does not learn by gradients"),
        ("DIN", {}, "DIN normalises over the examples of a batch"),
        ("RecVAE", {}, "RecVAE has its own kind of epoch in RecBole"),
        (
            "LightSANs",
            {"loss_type": "SSM", "negative_distribution": "in_batch", "hidden_size": 16},
            "negative_distribution is in_batch, but each of 2 processes",
        ),
    ],
)
def test_models_that_several_processes_cannot_train_are_refused(model, keys, sentence, load, in_processes):
    from recbole_ext import get_trainer

    dataset, train, valid, _ = load(model, **keys)

    def fit():
        config = dataset.config
        get_trainer(config)(config, config.model_class(config, train._dataset)).fit(train, valid, saved=False)

    for error in in_processes(2, fit):
        assert isinstance(error, InputError)
        assert sentence in str(error)


@pytest.mark.parametrize("model", ["Pop", "RecVAE"])
def test_they_are_refused_before_the_data_are_read(model, make_config, in_processes, monkeypatch):
    keys = make_config(model).to_dict()
    monkeypatch.setattr("recbole_ext.quick_start.create_dataset", lambda config: pytest.fail("reads the data"))
    given = {name: keys[name] for name in ("data_path", "checkpoint_dir", "use_gpu")}
    for error in in_processes(2, lambda: run_recbole(model, keys["dataset"], config_dict=given, argv=[])):
        assert isinstance(error, InputError), error
        assert f"nproc is 2, but {model}" in str(error)


def test_nproc_in_python_is_refused(make_config):
    with pytest.raises(InputError, match="nproc is 2, but .*; leave it out, or train in several with"):
        make_config(nproc=2)
    with pytest.raises(InputError, match="world_size is 2; torchrun sets it"):
        make_config(world_size=2)
    make_config(nproc=1, world_size=-1)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], (1, [])),
        (["--model=BST", "--nproc=3"], (3, ["--model=BST"])),
        (["run", "--nproc", "2", "--epochs=1"], (2, ["run", "--epochs=1"])),
        (["--nproc=1"], (1, [])),
        (["--nproc=0", "--model=BST"], (1, ["--nproc=0", "--model=BST"])),
        (["tune", "--nproc=2"], (1, ["tune", "--nproc=2"])),
        (["--nproc=2", "--help"], (1, ["--nproc=2", "--help"])),
    ],
)
def test_the_command_line_knows_how_many_processes_to_start(argv, expected):
    assert number_of_processes(argv) == expected


# -------------------------------------------------------------------- exit status, and restarts by torchrun


@pytest.mark.parametrize(
    ("statuses", "expected", "said"),
    [
        ([0, 0], 0, ""),
        ([2, 3, 3], 2, ""),
        ([143, 143], 143, ""),
        ([1, 130], 1, ""),
        ([3, -signal.SIGTERM], 143, "terminated"),
        ([3, -signal.SIGKILL], 1, "process 1 of 2 was ended by SIGKILL, so the others have ended; resume the run with"),
        ([3, None, 3], 1, "process 1 of 3 has not answered, so the others have ended; resume the run with"),
    ],
)
def test_the_exit_status_of_several_processes(statuses, expected, said, tmp_path, capsys):
    (tmp_path / "checkpoint").write_text("/saved/a run.pth")
    assert launcher._status(statuses, tmp_path) == expected
    error = capsys.readouterr().err
    assert (said in error) if said else not error
    assert ("--resume='/saved/a run.pth'" in error) == ("resume" in said)
    assert error.count("\n") == bool(said)


def test_a_second_signal_ends_all_at_once(tmp_path):
    begin, first = time.monotonic(), [sys.executable, "-c", "import time; time.sleep(60)"]
    waits = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-uc", waits], stdout=subprocess.PIPE)
    other.stdout.readline()
    children = [subprocess.Popen(first, stderr=subprocess.DEVNULL), other]
    assert launcher._watch(children, [signal.SIGINT, signal.SIGINT], tmp_path) == 130
    assert other.wait() == -signal.SIGKILL
    assert time.monotonic() - begin < launcher.GRACE


def test_a_restarted_run_is_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "size", lambda: 2)
    checkpoint, folder = tmp_path / "run.pth", str(tmp_path)
    restarts.keep_name(str(checkpoint))  # without torchrun
    assert restarts.to_resume(folder) is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job 1/a")
    assert restarts.to_resume(folder) is None
    restarts.keep_name(str(checkpoint))
    assert restarts.to_resume(folder) is None  # no checkpoint yet
    checkpoint.touch()
    assert restarts.to_resume(folder) is None  # reserved, and empty
    (tmp_path / "run.latest").write_bytes(b"x")
    assert restarts.to_resume(folder) == str(checkpoint)
    restarts.forget(folder)
    assert restarts.to_resume(folder) is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun's name for a job without one
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    restarts.keep_name(str(checkpoint))
    assert restarts.to_resume(folder) == str(checkpoint)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert restarts.to_resume(folder) is None  # of another job
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert restarts.to_resume(folder) is None
