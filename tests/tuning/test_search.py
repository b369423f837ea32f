"""Whole searches with Ray, from the arguments to the best trial."""

import json
import os
from pathlib import Path

import pytest
import yaml

from recbole_ext import InputError, SearchError, load_data_and_model, run_recbole, search
from recbole_ext.cli.entry import main
from recbole_ext.tuning.journal import OUT_OF_TIME, Journal
from recbole_ext.tuning.options import SearchOptions

ray = pytest.importorskip("ray", minversion="2.45")
from recbole_ext.tuning.backend import cluster as ray_cluster  # noqa: E402
from recbole_ext.tuning.backend.algorithms import grace_period, make_scheduler  # noqa: E402
from recbole_ext.tuning.backend.cluster import trial_resources  # noqa: E402

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("no_waiting")]
SMALL = {
    "epochs": 3, "train_batch_size": 16, "show_progress": False, "state": "warning", "MAX_ITEM_LIST_LENGTH": 8,
    "topk": [5], "valid_metric": "NDCG@5", "use_gpu": False, "hidden_size": 16, "inner_size": 32, "n_layers": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
    """Ray, started once for all searches in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # or a busy machine stops the trials
        ray_cluster.start_ray(num_cpus=2, include_dashboard=False, object_store_memory=2**27, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture
def toy(write_events, random_events):
    write_events(random_events())
    return {**SMALL, "data_path": "data"}  # relative


def test_search_returns_the_best_trial_writes_files_and_tests_once(cluster, toy, monkeypatch):
    tested = []
    monkeypatch.setattr("recbole_ext.tuning.results.evaluate_checkpoint", recorded_test(tested))
    space = {"learning_rate": {"loguniform": [1e-4, 3e-2]}, "hidden_dropout_prob": {"choice": [0.1, 0.3]}}
    result = search("MEANTIME", "toy", None, toy, space, num_samples=5, grace_period=1, argv=[])
    folder = Path(result["folder"])
    assert len(result["trials"]) == 5
    assert any(trial["status"] == "stopped" and trial["epochs"] < 3 for trial in result["trials"])  # ASHA
    assert result["best_valid_score"] == max(trial["best_score"] for trial in result["trials"])
    assert tested == [result["checkpoint"]]
    assert [file.name for file in (folder / "checkpoints").iterdir()] == [Path(result["checkpoint"]).name]
    assert {"best.yaml", "trials.csv", "report.html", "search.yaml"} <= {file.name for file in folder.iterdir()}
    again = run_recbole(config_file_list=[str(folder / "best.yaml")], argv=[])
    assert again["best_valid_score"] == result["best_valid_score"]
    assert again["test_result"] == result["test_result"]
    assert load_data_and_model(result["checkpoint"])[0]["learning_rate"] == result["keys"]["learning_rate"]
    # nothing is left to run
    resumed = search("MEANTIME", "toy", None, toy, space, resume=True, argv=[])
    assert resumed["trials"] == result["trials"]
    Path(result["checkpoint"]).unlink()
    (folder / "report.html").unlink()
    with pytest.raises(
        InputError, match=f"trial {result['trial']} is the best, but .*; train it again with --config_files"
    ):
        search(resume=str(folder), argv=[])
    assert (folder / "report.html").exists()


def recorded_test(calls):
    from recbole_ext.quick_start import evaluate_checkpoint

    return lambda checkpoint, *rest: calls.append(checkpoint) or evaluate_checkpoint(checkpoint, *rest)


def test_search_records_failed_trials_and_fails_if_all_fail(cluster, toy, capsys):
    space = {"learning_rate": {"grid": [1e6, 1e-3]}}
    result = search("MEANTIME", "toy", None, toy, space, argv=[])
    failed, good = sorted(result["trials"], key=lambda trial: trial["status"])
    assert failed["status"] == "failed"
    assert "not a number" in failed["reason"]
    assert result["keys"] == good["keys"] == {"learning_rate": 1e-3}
    Path("bad.yaml").write_text(yaml.safe_dump({"learning_rate": {"choice": [1e6]}}))
    keys = [f"--{key}={value}" for key, value in toy.items()]
    assert main(["tune", "--model=MEANTIME", "--dataset=toy", "--space=bad.yaml", *keys]) == 1
    error = capsys.readouterr().err
    assert "all 1 trials failed: the training loss is not a number" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("name", ["random", "optuna", "hyperopt"])
def test_search_skips_invalid_configurations_and_resume_runs_missing_trials(cluster, toy, name):
    pytest.importorskip(name)
    kernels = {"choice": [["day"], ["day", "position"]]}  # three or four, with the default sin and log
    rate = {"loguniform": [1e-4, 1e-1]}
    space = {"hidden_size": {"choice": [16, 24]}, "absolute_kernels": kernels, "learning_rate": rate}
    del toy["hidden_size"]
    Path("own.yaml").write_text("hidden_size: 24\nabsolute_kernels: [day]\n")
    arguments = {"num_samples": 3, "search_alg": name, "scheduler": "none", "keep_checkpoints": 3, "argv": []}
    result = search("MEANTIME", "toy", ["own.yaml"], {**toy, "epochs": 1}, space, **arguments)
    assert [trial["status"] for trial in result["trials"]] == ["finished"] * 3
    first = next(trial["keys"] for trial in result["trials"] if trial["trial"] == 1)
    assert first == {"hidden_size": 24, "absolute_kernels": ["day"], "learning_rate": 0.001}  # the default
    chosen = [(trial["keys"]["hidden_size"], len(trial["keys"]["absolute_kernels"])) for trial in result["trials"]]
    assert (16, 1) not in chosen  # three heads do not divide 16
    journal = Journal(result["folder"])
    lines = [json.loads(line) for line in Path(journal.path("trials.jsonl")).read_text().splitlines()]
    lines[1] |= {"status": "stopped", "reason": OUT_OF_TIME}
    Path(journal.path("trials.jsonl")).write_text("".join(json.dumps(line) + "\n" for line in lines[:2]))
    again = search("MEANTIME", resume=result["folder"], argv=[])["trials"]
    assert again[:2] == lines[:2]
    assert len({trial["trial"] for trial in again}) == len(again) == 4
    (repeated,) = [trial for trial in again if trial["repeats"] is not None]
    assert (repeated["repeats"], repeated["keys"]) == (lines[1]["trial"], lines[1]["keys"])
    assert (repeated["status"], repeated["best_score"]) == ("finished", lines[1]["best_score"])
    assert search("MEANTIME", resume=result["folder"], argv=[])["trials"] == again  # nothing is left to run


def test_interrupted_search_names_its_folder_and_resume_compares_keys(cluster, toy, monkeypatch, capsys):
    def interrupt(plan, journal, resume):
        journal.start(plan.to_dict())
        raise KeyboardInterrupt

    words = [f"--{key}={value}" for key, value in toy.items()]
    Path("own.yaml").write_text(yaml.safe_dump({"learning_rate": {"grid": [1e-3]}}))
    with monkeypatch.context() as patch:
        patch.setattr("recbole_ext.tuning.run_search.run_trials", interrupt)
        assert main(["tune", "--model=MEANTIME", "--dataset=toy", "--space=own.yaml", *words]) == 130
    (folder,) = Path("tune_results").resolve().iterdir()
    assert capsys.readouterr().err == f"recbole-ext: interrupted; resume it with --resume={folder}\n"
    assert main(["tune", f"--resume={folder}", "--n_layers=2"]) == 2
    assert "n_layers is 2, but the search in" in capsys.readouterr().err
    assert main(["tune", f"--resume={folder}", "--space=own.yaml", *words]) == 0
    assert "; 0 trials ended, 1 left\n" in capsys.readouterr().out
    assert main(["tune", f"--resume={folder}"]) == 0
    assert f"all 1 trials of the search in {folder} have ended\n" in capsys.readouterr().out


# ---------------------------------------------------------------- refused before Ray is started


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"cpus_per_trial": 9999}, "cpus_per_trial is 9999, but this machine has"),
        ({"gpus_per_trial": 1}, "gpus_per_trial is 1, but use_gpu is False"),
        ({"num_sample": 3}, "search has no option 'num_sample'; did you mean 'num_samples'"),
        ({"resume": True}, "there is no search of MEANTIME on toy to resume in"),
        ({"resume": "nowhere"}, "there is no search to resume in"),
        ({"config_dict": {"valid_metric": "Foo@5"}}, "valid_metric is 'Foo@5', which is not measured"),
        ({"config_dict": {"eval_step": 0}}, "eval_step is 0"),
        ({"config_dict": {"epochs": 0}}, "epochs is 0"),
        ({"config_dict": {"eval_args": {"split": {"LS": "test_only"}}}}, "leaves no validation data"),
        ({"space": "none.yaml"}, "search space none.yaml cannot be read"),
    ],
)
def test_search_with_invalid_arguments_creates_no_folder(toy, more, message):
    keys = {**toy, **more.pop("config_dict", {})}
    arguments = {"space": {"learning_rate": {"choice": [0.1]}}, "argv": [], **more}
    with pytest.raises(InputError) as caught:
        search("MEANTIME", "toy", None, keys, **arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(Path().glob("tune_results/*"))
    assert not ray.is_initialized() or os.environ.get("RAY_ADDRESS") is None


def test_trial_resources_must_fit_one_machine():
    with_gpu, without = {"use_gpu": True}, {"use_gpu": False}
    machines = [{"CPU": 4.0}, {"CPU": 2.0, "GPU": 1.0}]
    assert trial_resources(SearchOptions(), with_gpu, machines) == {"CPU": 1, "GPU": 1}
    assert trial_resources(SearchOptions(), without, machines) == {"CPU": 1}
    assert trial_resources(SearchOptions(gpus_per_trial=0.25), with_gpu, machines) == {"CPU": 1, "GPU": 0.25}
    assert trial_resources(SearchOptions(gpus_per_trial=0), with_gpu, machines) == {"CPU": 1}
    for options, message in [
        (SearchOptions(cpus_per_trial=5), "cpus_per_trial is 5, but the largest of 2 machines has 4 CPUs"),
        (SearchOptions(gpus_per_trial=2), "gpus_per_trial is 2, but the largest of 2 machines has 1 GPUs"),
        (SearchOptions(cpus_per_trial=4, gpus_per_trial=1), "no machine has 4 CPUs and 1 GPUs together"),
    ]:
        with pytest.raises(InputError, match=message):
            trial_resources(options, with_gpu, machines)


def test_start_ray_tries_again_on_a_busy_machine(monkeypatch):
    class Slow:
        starts, ends = 0, 0

        def init(self, address, **how):
            self.starts += 1
            if self.starts < 3:
                raise Exception("The current node timed out during startup. This could happen because ...")

        def shutdown(self):
            self.ends += 1

    slow = Slow()
    monkeypatch.setattr(ray_cluster, "ray", slow)
    ray_cluster.start_ray()
    assert (slow.starts, slow.ends) == (3, 2)
    slow.starts = -10
    with pytest.raises(Exception, match="timed out"):
        ray_cluster.start_ray()


# ---------------------------------------------------------------- schedulers


def test_grace_period_is_ten_epochs_or_a_fifth():
    assert [grace_period(SearchOptions(), epochs) for epochs in (1, 3, 5, 20, 50, 150)] == [1, 1, 1, 4, 10, 10]
    assert grace_period(SearchOptions(grace_period=7), 5) == 5


@pytest.mark.parametrize("name", ["asha", "median"])
def test_make_scheduler_uses_the_scores_of_ended_trials(name):
    class Trial:
        trial_id = "new"

    ended = [
        {"trial": n, "status": "finished", "curve": [[epoch, 0.5 + 0.01 * n, 1.0] for epoch in range(1, 10)]}
        for n in range(1, 7)
    ]
    ended.append({"trial": 7, "status": "failed", "curve": []})
    options = SearchOptions(scheduler=name, grace_period=2)
    for reached, decision in ((0.9, "CONTINUE"), (0.1, "STOP")):
        chosen = make_scheduler(options, 9, "max", ended)
        chosen.on_trial_add(None, Trial())
        assert chosen.on_trial_result(None, Trial(), {"epoch": 2, "best_score": reached}) == decision
    assert make_scheduler(SearchOptions(scheduler="none"), 9, "max", ended) is None


def test_search_error_is_no_input_error():
    assert not issubclass(SearchError, InputError)
