"""Search spaces: reading, checking, and drawing valid configurations."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from recbole_ext import MODELS, Config
from recbole_ext.errors import InputError
from recbole_ext.tuning.options import SearchOptions, read_options
from recbole_ext.tuning.points import InvalidReason, check_values, default_point, default_samples, random_points
from recbole_ext.tuning.space import check_space, read_hyper_test, read_space


@pytest.fixture
def space():
    """A checked space for MEANTIME on ml-100k."""

    def make(entries, **keys):
        return check_space(entries, "the search space", Config("MEANTIME", "ml-100k", None, keys, argv=[]))

    return make


def always_valid(point):
    return ""


# ---------------------------------------------------------------- domains


@pytest.mark.parametrize(
    ("entry", "choices"),
    [
        ({"choice": [16, 32, 64]}, (16, 32, 64)),
        ({"grid": [64, 16]}, (64, 16)),
        ({"randint": [2, 5]}, (2, 3, 4, 5)),
        ({"randint": [3, 3]}, (3,)),
        ({"quniform": [20, 100, 20]}, (20, 40, 60, 80, 100)),
        ({"quniform": [15, 50, 20]}, (20, 40)),
    ],
)
def test_discrete_distribution_has_choices(space, entry, choices):
    distribution = space({"hidden_size": entry})["hidden_size"]
    assert distribution.choices == choices
    drawn = {distribution.sample(np.random.default_rng(seed)) for seed in range(100)}
    assert drawn == set(choices)
    assert all(isinstance(value, int) for value in drawn)


def test_quniform_has_no_rounding_errors(space):
    distribution = space({"hidden_dropout_prob": {"quniform": [0.1, 0.5, 0.1]}})["hidden_dropout_prob"]
    assert distribution.choices == (0.1, 0.2, 0.3, 0.4, 0.5)


@pytest.mark.parametrize(("kind", "middle"), [("uniform", 0.0505), ("loguniform", 0.01)])
def test_continuous_distribution_samples_the_whole_range(space, kind, middle):
    distribution = space({"learning_rate": {kind: [1e-3, 1e-1]}})["learning_rate"]
    generator = np.random.default_rng(0)
    drawn = [distribution.sample(generator) for _ in range(2000)]
    assert distribution.choices is None
    assert 1e-3 <= min(drawn) < 1.2e-3 * (40 if kind == "uniform" else 1)
    assert 0.09 < max(drawn) <= 0.1
    assert np.median(drawn) == pytest.approx(middle, rel=0.2)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "the search space is empty; it should contain lines such as"),
        (
            {"n_layer": {"choice": [1]}},
            "'n_layer' is not read by MEANTIME; its key for the number of layers is n_layers.",
        ),
        ({"n_layers": {"choice": [1, "two"]}}, "key 'n_layers' is 'two'; it should be a whole number"),
        ({"n_layers": {"choice": []}}, "'n_layers' has choice []; it should be a list of values"),
        ({"n_layers": {"choice": 2}}, "'n_layers' has choice 2; it should be a list of values"),
        ({"n_layers": [1, 2]}, "'n_layers' is [1, 2]; it should be one of choice, grid, uniform"),
        ({"n_layers": {"normal": [1, 2]}}, "it should be one of choice, grid, uniform"),
        ({"n_layers": {"choice": [1], "grid": [2]}}, "it should be one of choice, grid, uniform"),
        ({"hidden_size": {"uniform": [16, 64]}}, "key 'hidden_size' is 34.3344; it should be a whole number"),
        ({"learning_rate": {"loguniform": [0, 1]}}, "two numbers with 0 < low < high"),
        ({"learning_rate": {"uniform": [2, 1]}}, "two numbers with low < high"),
        ({"learning_rate": {"uniform": [0.1]}}, "'learning_rate' has uniform [0.1]"),
        ({"learning_rate": {"uniform": [0.1, math.inf]}}, "'learning_rate' has uniform"),
        (
            {"hidden_dropout_prob": {"uniform": [0.1, 1.5]}},
            "key 'hidden_dropout_prob' is 1.5; it should be",
        ),
        ({"n_layers": {"randint": [1, 2.5]}}, "two integers"),
        ({"n_layers": {"randint": [True, 2]}}, "two integers"),
        ({"hidden_size": {"quniform": [10, 15, 8]}}, "a multiple of q between low and high"),
        ({"valid_metric": {"choice": ["MRR@10"]}}, "has 'valid_metric', which must be equal in all trials"),
        ({"epochs": {"choice": [1, 2]}}, "has 'epochs', which must be equal in all trials"),
        ({"exclude_history": {"choice": [True, False]}}, "has 'exclude_history', which must be equal in all trials"),
        ({"device": {"choice": ["cpu"]}}, "key 'device' is not read by MEANTIME; write use_gpu or gpu_id."),
    ],
)
def test_check_space_refuses_an_invalid_space(space, entries, message):
    with pytest.raises(InputError) as caught:
        space(entries)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_check_space_leaves_out_fixed_keys(space):
    entries = {"n_layers": {"choice": [1, 2]}, "learning_rate": {"loguniform": [1e-4, 1e-2]}}
    assert set(space(entries, n_layers=2)) == {"learning_rate"}
    with pytest.raises(InputError, match="every key of the search space has a fixed value"):
        space({"n_layers": {"choice": [1, 2]}}, n_layers=2)


def test_space_in_the_documentation_is_valid(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "search.md").read_text(encoding="utf-8")
    (example,) = re.findall("```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "own.yaml").write_text(example)
    domains = check_space(*read_space(tmp_path / "own.yaml", "MEANTIME"), Config("MEANTIME", "ml-100k", argv=[]))
    assert {distribution.kind for distribution in domains.values()} >= {
        "loguniform",
        "uniform",
        "quniform",
        "randint",
        "choice",
        "grid",
    }
    check_values(domains, "docs/search.md", InvalidReason("MEANTIME", "ml-100k", {}), 0)


@pytest.mark.parametrize("model", MODELS)
def test_default_spaces_are_valid(model):
    config = Config(model, "ml-100k", argv=[])
    found, source = read_space(None, model)
    domains = check_space(found, source, config)
    invalid_reason = InvalidReason(model, "ml-100k", {})
    check_values(domains, source, invalid_reason, 0)
    first = default_point(domains, config)
    drawn = random_points(domains, 5, invalid_reason, 0, first)
    assert len(drawn) == 5
    assert drawn[0] == first == {key: config[key] for key in domains}
    for point in drawn:
        assert Config(model, "ml-100k", None, point, argv=[])["model"] == model


def test_read_space_refuses_missing_files():
    with pytest.raises(InputError, match="there is no default search space for SASRec; pass one with --space=FILE"):
        read_space(None, "SASRec")
    for name in ("none.yaml", "none.test"):
        with pytest.raises(InputError, match=f"search space {name} cannot be read: No such file"):
            read_space(name, "SASRec")


# ---------------------------------------------------------------- RecBole's hyper.test


def test_read_hyper_test_means_the_same_as_in_recbole(tmp_path):
    file = tmp_path / "hyper.test"
    file.write_text(
        "learning_rate loguniform -8,0\nembedding_size choice [64, 96 , 128]\n\n# a comment\n"
        "hidden_dropout_prob uniform 0.1, 0.5\nMAX_ITEM_LIST_LENGTH quniform 20,100,10\n"
        "mlp_hidden_size choice ['[64, 64]','[128, 128]']\n"
    )
    found = read_hyper_test(str(file))
    assert found["learning_rate"]["loguniform"] == [math.exp(-8), 1.0]
    assert found["embedding_size"] == {"choice": [64, 96, 128]}
    assert found["hidden_dropout_prob"] == {"uniform": [0.1, 0.5]}
    assert found["MAX_ITEM_LIST_LENGTH"] == {"quniform": [20, 100, 10]}
    domains = check_space(*read_space(str(file), "BST"), Config("BST", "ml-100k", argv=[]))
    assert domains["mlp_hidden_size"].choices == ([64, 64], [128, 128])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("learning_rate loguniform", "line 1 is 'learning_rate loguniform'; it should be `key distribution values`"),
        ("learning_rate loguniform -8", "line 1: loguniform is '-8'; it should be 2 numbers"),
        ("learning_rate loguniform -8,x", "line 1: loguniform is '-8,x'; it should be 2 numbers"),
        ("learning_rate loguniform 0,9999", "its ends are exponents of e"),
        ("learning_rate normal 0,1", "line 1: unknown distribution 'normal'"),
        ("n_layers choice 5", "line 1: choice is '5'; it should be a list"),
        ("n_layers choice __import__('os').getcwd()", "it should be a list"),
        ("n_layers choice [1]\nn_layers choice [2]", "line 2: key 'n_layers' appears twice"),
    ],
)
def test_read_hyper_test_names_an_invalid_line(tmp_path, line, message):
    (tmp_path / "hyper.test").write_text(line + "\n")
    with pytest.raises(InputError) as caught:
        read_hyper_test("hyper.test")
    assert message in str(caught.value)


# ---------------------------------------------------------------- points


def test_random_points_are_distinct_and_depend_on_the_seed(space):
    domains = space({"n_layers": {"choice": [1, 2, 3]}, "hidden_size": {"choice": [16, 32]}})
    drawn = random_points(domains, 5, always_valid, 1)
    assert drawn == random_points(domains, 5, always_valid, 1) != random_points(domains, 5, always_valid, 2)
    everything = random_points(domains, 100, always_valid, 1)
    assert len({str(point) for point in everything}) == len(everything) == 6


def test_random_points_combine_a_grid_with_draws(space):
    grid = {"n_layers": {"grid": [1, 2]}, "hidden_size": {"grid": [16, 32, 64]}}
    domains = space(grid)
    assert default_samples(domains) == 1
    assert len(random_points(domains, 1, always_valid, 0)) == 6
    mixed = space({**grid, "learning_rate": {"loguniform": [1e-4, 1e-2]}})
    assert default_samples(mixed) == 20
    drawn = random_points(mixed, 2, always_valid, 0)
    assert len(drawn) == 12
    assert len({point["learning_rate"] for point in drawn}) == 12


def test_random_points_begin_with_the_default_configuration(space):
    config = Config("MEANTIME", "ml-100k", argv=[])
    domains = space({
        "learning_rate": {"loguniform": [1e-4, 1e-2]}, "absolute_kernels": {"choice": [["day"], ["position", "day"]]},
        "n_layers": {"randint": [1, 3]},
    })  # fmt: skip
    first = default_point(domains, config)
    assert first == {"learning_rate": 0.001, "absolute_kernels": ["position", "day"], "n_layers": 2}
    drawn = random_points(domains, 4, always_valid, 0, first)
    assert drawn == [first, *random_points(domains, 3, always_valid, 0)]
    grid = space({"n_layers": {"grid": [1, 2]}, "learning_rate": {"loguniform": [1e-4, 1e-2]}})
    drawn = random_points(grid, 2, always_valid, 0, default_point(grid, config))
    assert drawn[2] == {"n_layers": 2, "learning_rate": 0.001}
    assert len(drawn) == 4
    # the defaults are not in the space
    for entry in ({"choice": [16, 32]}, {"quniform": [10, 70, 10]}):
        assert default_point(space({"hidden_size": entry}), config) is None
    assert default_point(space({"learning_rate": {"uniform": [0.01, 0.1]}}), config) is None


def test_random_points_leave_out_invalid_configurations(space):
    domains = space({
        "hidden_size": {"choice": [16, 32, 48]}, "absolute_kernels": {"choice": [["day"], ["day", "position"]]},
        "relative_kernels": {"choice": [["sin"], ["sin", "log"]]},
    })  # fmt: skip
    drawn = random_points(domains, 100, InvalidReason("MEANTIME", "ml-100k", {}), 0)
    heads = [len(point["absolute_kernels"]) + len(point["relative_kernels"]) for point in drawn]
    assert len(drawn) == 8  # of 12: three heads divide 48 alone
    assert all(point["hidden_size"] % head == 0 for point, head in zip(drawn, heads, strict=True))


def test_check_values_refuses_a_value_that_is_never_valid(space):
    domains = space({"hidden_size": {"choice": [16, 33]}, "n_layers": {"choice": [1, 2]}})
    with pytest.raises(InputError, match=r"'hidden_size' is never valid as 33: hidden_size is 33, which 4 kernels"):
        check_values(domains, "the search space", InvalidReason("MEANTIME", "ml-100k", {}), 0)
    with pytest.raises(InputError, match="no combination of the search space is valid; the last one: no"):
        random_points(domains, 3, lambda point: "no", 0)


# ---------------------------------------------------------------- options


def test_read_options_parses_text():
    given = {"num_samples": "8", "scheduler": "None", "gpus_per_trial": "0.5", "address": "auto", "time_budget": None}
    options = SearchOptions(**read_options(given))
    assert (options.num_samples, options.scheduler, options.gpus_per_trial, options.address) == (8, "none", 0.5, "auto")
    for name, value in [("num_samples", 0), ("scheduler", "hyperband"), ("cpus_per_trial", "many"), ("search_alg", 1)]:
        with pytest.raises(InputError, match=f"key '{name}' is"):
            read_options({name: value})


def test_random_points_announces_the_check_of_a_large_grid(space, capsys):
    domains = space({"hidden_size": {"grid": list(range(4, 4 * 1002, 4))}})
    assert len(random_points(domains, 1, always_valid, 0)) == 1001
    assert capsys.readouterr().out == "checking the 1,001 configurations of the grid\n"
    random_points(space({"hidden_size": {"grid": [16, 32]}}), 1, always_valid, 0)
    assert capsys.readouterr().out == ""
