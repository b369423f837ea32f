"""Plans of searches, new and stored, and what searchers propose for them. No trial runs."""

import contextlib
import signal
from pathlib import Path

import pytest
import yaml
from recbole.utils import init_seed

from recbole_ext import Config, InputError, create_dataset, data_preparation
from recbole_ext.tuning import results
from recbole_ext.tuning.journal import OUT_OF_TIME, Journal, newest_folder
from recbole_ext.tuning.options import SearchOptions
from recbole_ext.tuning.plan import new_plan, remaining_trials, stored_plan
from recbole_ext.utils.signals import SigtermReceived
from tests.tuning.conftest import make_record

RATE = {"learning_rate": {"choice": [0.001, 0.01]}}


@pytest.fixture
def planned(write_events, random_events):
    """A plan on toy data."""
    data_path = write_events(random_events())

    def make(space, model="MEANTIME", given=None, **keys):
        keys = {"data_path": data_path, "use_gpu": False, "topk": [5], "valid_metric": "NDCG@5", **keys}
        return new_plan(model, Config(model, "toy", None, keys, argv=[]), space, given or {})

    return make


@pytest.fixture
def written(tmp_path):
    """The folder of a search that has just started."""

    def write(plan):
        journal = Journal(str(tmp_path / "tune_results" / "search"))
        journal.start(plan.to_dict())
        return journal

    return write


def searcher_of(algorithm):
    """`make_searcher`, if Ray and the algorithm are installed."""
    pytest.importorskip("ray", minversion="2.45")
    pytest.importorskip(algorithm)
    from recbole_ext.tuning.backend.algorithms import make_searcher

    return make_searcher


def events_of(part):
    return sorted(zip(part.inter_feat["user_id"].tolist(), part.inter_feat["item_id"].tolist(), strict=True))


def test_plan_has_the_random_split_of_a_run_with_the_same_seed(planned, written):
    plan = planned(RATE, "BPR", eval_args={"split": {"RS": [0.6, 0.2, 0.2]}, "order": "RO"})
    init_seed(plan.config["seed"], True)
    loaders = data_preparation(plan.config, create_dataset(plan.config))
    again = stored_plan(written(plan), None, None, {})
    for place, loader in enumerate(loaders):
        assert events_of(plan.data.parts[place]) == events_of(loader._dataset) == events_of(again.data.parts[place])


@pytest.mark.parametrize("algorithm", ["optuna", "hyperopt"])
def test_searcher_of_a_stored_plan_begins_with_the_default_configuration(
    planned, written, algorithm, monkeypatch, tmp_path
):
    make_searcher = searcher_of(algorithm)
    Path("own.yaml").write_text("n_layers: 3\n")
    space = {"n_layers": {"randint": [1, 4]}}
    keys = {"data_path": str(tmp_path / "data"), "topk": [5], "valid_metric": "NDCG@5"}
    config = Config("MEANTIME", "toy", ["own.yaml"], keys, argv=[])
    plan = stored_plan(written(new_plan("MEANTIME", config, space, {"search_alg": algorithm})), None, None, {})
    searcher = make_searcher(plan, remaining_trials(plan, []), str(tmp_path / "state"))
    assert searcher.suggest("a") == {"trial": {"number": 1, "keys": {"n_layers": 3}}}


@pytest.mark.parametrize("algorithm", ["optuna", "hyperopt"])
def test_searcher_repeats_a_trial_out_of_time_and_proposes_it_no_second_time(planned, algorithm, tmp_path):
    make_searcher = searcher_of(algorithm)
    plan = planned({"learning_rate": {"loguniform": [1e-4, 1e-1]}}, given={"search_alg": algorithm, "num_samples": 2})
    cut_short = {"trial": 1, "keys": plan.first, "reason": OUT_OF_TIME}
    left = remaining_trials(plan, [cut_short])
    searcher = make_searcher(plan, left, str(tmp_path / "state"))  # no state: it is written when a trial ends by itself
    assert left.count == 2
    assert searcher.suggest("a") == {"trial": {"number": 2, "keys": {"learning_rate": 0.001}, "repeats": 1}}
    assert searcher.suggest("b")["trial"]["keys"] != plan.first


@pytest.mark.parametrize("algorithm", ["optuna", "hyperopt"])
def test_searcher_proposes_distinct_configurations_and_ignores_a_damaged_state(planned, algorithm, tmp_path, capsys):
    make_searcher = searcher_of(algorithm)
    plan = planned(RATE, given={"search_alg": algorithm})
    state = tmp_path / "state"
    for content in (b"", b"garbage", b"\x80\x05\x95\xff"):
        state.write_bytes(content)
        searcher = make_searcher(plan, remaining_trials(plan, []), str(state))
        assert f"{state} cannot be read" in capsys.readouterr().out
        found = [searcher.suggest(name) for name in "abc"]
        assert sorted(trial["trial"]["keys"]["learning_rate"] for trial in found[:2]) == [0.001, 0.01]
        assert found[2] == type(searcher).FINISHED
    searcher.on_trial_complete("a", {"best_score": 0.5})
    assert not make_searcher(plan, remaining_trials(plan, []), str(state)).names  # it is whole again
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("algorithm", ["optuna", "hyperopt"])
def test_searcher_does_not_round_the_default_configuration(planned, algorithm, tmp_path):
    make_searcher = searcher_of(algorithm)
    Path("own.yaml").write_text("learning_rate: 0.0012345678901\nweight_decay: 1.23456789e-5\n")
    space = {"learning_rate": {"loguniform": [1e-4, 1e-1]}, "weight_decay": {"uniform": [0, 1e-3]}}
    keys = {"data_path": str(tmp_path / "data"), "topk": [5], "valid_metric": "NDCG@5"}
    config = Config("MEANTIME", "toy", ["own.yaml"], keys, argv=[])
    plan = new_plan("MEANTIME", config, space, {"search_alg": algorithm})
    searcher = make_searcher(plan, remaining_trials(plan, []), str(tmp_path / "state"))
    assert searcher.suggest("a")["trial"]["keys"] == {"learning_rate": 0.0012345678901, "weight_decay": 1.23456789e-5}
    second = searcher.suggest("b")["trial"]["keys"]["learning_rate"]
    assert second == float(f"{second:.6g}")


def test_encode_and_decode_use_indices_of_discrete_values_and_rounded_numbers(planned):
    pytest.importorskip("ray", minversion="2.45")
    from recbole_ext.tuning.backend.algorithms import decode, encode

    space = {"mlp_hidden_size": {"choice": [[8], [16, 8]]}, "learning_rate": {"uniform": [0.1, 0.2]}}
    space = planned(space, "BST").space
    point = decode(space, {"mlp_hidden_size": 1, "learning_rate": 0.123456789})
    assert point == {"mlp_hidden_size": [16, 8], "learning_rate": 0.123457}
    assert encode(space, point) == {"mlp_hidden_size": 1, "learning_rate": 0.123457}


def test_new_plan_checks_keys_against_the_data(planned):
    with pytest.raises(InputError, match="topk is 21, but the data set has only 20 items"):
        planned(RATE, topk=[5, 21])


def test_new_plan_refuses_a_grid_with_a_search_algorithm(planned):
    with pytest.raises(InputError, match="a grid of 'seed', but search_alg is optuna, .*; make it a choice, or leave"):
        planned({**RATE, "seed": {"grid": [1, 2]}}, given={"search_alg": "optuna"})
    assert planned({"seed": {"grid": [1, 2]}}).total == 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"options": None}, "has an invalid options: None; start a new search"),
        ({"space": []}, r"has an invalid space: \[\]; start a new search"),
        ({"points": 5}, "has an invalid points: 5; start a new search"),
        ({"options": {"colour": 1}}, "has the unknown option 'colour'; start a new search"),
    ],
)
def test_stored_plan_refuses_a_damaged_file_and_newest_folder_skips_it(planned, written, damage, message, tmp_path):
    journal = written(planned(RATE))
    whole = journal.read_plan()
    other = Journal(str(tmp_path / "tune_results" / "other"))
    other.start({**whole, **damage})
    with pytest.raises(InputError, match=message) as caught:
        stored_plan(other, None, None, {})
    assert "search.yaml" in str(caught.value)
    if damage.keys() != {"options"} or damage["options"] is None:
        assert newest_folder("tune_results", None, None) == journal.folder
    text = yaml.safe_dump({key: value for key, value in whole.items() if key != "points"})
    Path(other.path("search.yaml")).write_text(text)
    with pytest.raises(InputError, match="has no 'points'; start a new search"):
        other.read_plan()


def test_running_ray_restores_the_sigterm_handler(monkeypatch):
    ray = pytest.importorskip("ray", minversion="2.45")
    from recbole_ext.tuning.backend import cluster

    def stopped(*_, **__):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as Ray does
        raise SystemExit(15)

    def failed(*_, **__):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise ConnectionError("nobody there")

    def started(*_, **__):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def ours(*_):
        """The handler of the command line."""

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 1}}])
    monkeypatch.setattr(ray, "shutdown", started)
    before = signal.signal(signal.SIGTERM, ours)
    try:
        ends = [
            (stopped, pytest.raises(SigtermReceived)),
            (failed, pytest.raises(InputError, match="Ray cannot be started: nobody there")),
            (started, contextlib.nullcontext()),
        ]
        for start, expected in ends:
            monkeypatch.setattr(cluster, "start_ray", start)
            with expected, cluster.running_ray(SearchOptions(), {"use_gpu": False}, 0):
                assert signal.getsignal(signal.SIGTERM) is ours
            assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_search_on_some_users_says_so_and_measures_all_users_at_the_end(planned, tmp_path, monkeypatch):
    plan = planned(RATE, eval_users=8)
    assert plan.measured == "the validation data of 8 of 30 users"
    assert planned(RATE, eval_users=30).measured == planned(RATE).measured == "the validation data"
    with pytest.raises(InputError, match="eval_users"):
        planned({**RATE, "eval_users": {"choice": [5, 8]}})
    monkeypatch.setattr(results, "evaluate_checkpoint", lambda *_: (plan.config, {"ndcg@5": 0.1}, None))
    monkeypatch.setattr(results, "validate_checkpoint", lambda *_: (0.2, {"ndcg@5": 0.2}))
    journal = Journal(str(tmp_path / "search"))
    journal.start(plan.to_dict())
    journal.add(make_record(1, 0.3, keys={"learning_rate": 0.01}))
    result = results.finish(plan, journal)
    assert (result["best_valid_score"], result["best_valid_result"]) == (0.2, {"ndcg@5": 0.2})
    assert result["valid_sample"] == {"users": 8, "all_users": 30, "result": make_record(1, 0.3)["best_metrics"]}
    for name in ("best.yaml", "report.html"):
        assert "the validation data of 8 of 30 users" in Path(journal.path(name)).read_text(encoding="utf-8")
