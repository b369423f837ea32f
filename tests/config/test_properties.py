"""The property files that are shipped: every key is known and every value is accepted."""

import pytest

from recbole_ext import MODELS, Config, properties_file
from recbole_ext.config.paths import properties_dir
from recbole_ext.utils.literals import read_yaml

SETTINGS = sorted(path.stem for path in properties_dir().glob("setting/*.yaml"))
SPACES = sorted(path.stem for path in properties_dir().glob("search/*.yaml"))


@pytest.mark.parametrize("name", MODELS)
def test_the_defaults_of_a_model_are_accepted_and_used(name):
    defaults = read_yaml(str(properties_dir() / "model" / f"{name}.yaml"))
    config = Config(name, "ml-100k", argv=[])
    again = Config(name, "ml-100k", None, defaults, argv=[])
    for key, value in defaults.items():
        assert config[key] == again[key]
        assert value is None or config[key] == value


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_accepted_and_used(name):
    keys = read_yaml(str(properties_dir() / "setting" / f"{name}.yaml"))
    labels = {"threshold": {"rating": 4}} if "clicks" in name else {}
    model = name.partition("-")[0] if name.partition("-")[0] in MODELS else "BST"
    config = Config(model, "ml-100k", [properties_file(name, "setting")], labels, argv=[])
    split = keys.pop("eval_args", {}).get("split")
    assert split is None or config["eval_args"]["split"] == split
    for key, value in keys.items():
        assert value is None or config[key] == value or value.items() <= config[key].items()


def test_every_model_has_a_search_space():
    assert sorted(MODELS) == SPACES


@pytest.mark.parametrize("name", SPACES)
def test_every_value_of_a_search_space_is_accepted(name):
    for key, ways in read_yaml(str(properties_dir() / "search" / f"{name}.yaml")).items():
        ((way, values),) = ways.items()
        assert way in ("choice", "loguniform")
        for value in values:
            fits = {"hidden_size": 60} if name == "MEANTIME" else {}  # three kernels divide 60, not 64
            found = Config(name, "ml-100k", None, {**fits, key: value}, argv=[])[key]
            assert found == (None if value == "none" else value)
