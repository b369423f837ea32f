"""Keys that nothing reads, and values that keys do not take."""

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from recbole.model.sequential_recommender import SASRec

from recbole_ext import MEANTIME, MODELS, Config, InputError
from recbole_ext.config.known_keys import known_keys, unknown_key_sentence
from recbole_ext.config.paths import properties_dir, properties_file
from recbole_ext.config.schema import VALIDATORS
from recbole_ext.data.files.time_units import SECONDS
from recbole_ext.model.registry import find_model
from recbole_ext.tuning.space import check_space
from recbole_ext.utils.literals import read_yaml


def keys_of(*files: str) -> dict:
    return {key: value for file in files for key, value in read_yaml(file).items()}


@pytest.fixture(scope="module")
def recbole_keys() -> dict:
    import recbole

    folder = recbole.__path__[0] + "/properties/"
    return keys_of(folder + "overall.yaml", folder + "dataset/sample.yaml")


def refuse(*names, **keys) -> str:
    """The one sentence that refuses a configuration."""
    with pytest.raises(InputError) as caught:
        Config(*(names or ("MEANTIME", "ml-100k")), None, keys, argv=[])
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith((".", ".)"))
    return sentence


# ---------------------------------------------------------------- which keys there are


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("lerning_rate", "learning_rate"), ("learning-rate", "learning_rate"), ("LEARNING_RATE", "learning_rate"),
        ("top_k", "topk"), ("mask_ration", "mask_ratio"), ("max_item_list_length", "MAX_ITEM_LIST_LENGTH"),
        ("eval_setting", "eval_args"), ("training_neg_sample_num", "train_neg_sample_args"), ("lr", "learning_rate"),
        ("config_file_list", "config_files"), ("device", "use_gpu"), ("local_rank", "torchrun"),
    ],
)  # fmt: skip
def test_a_key_that_nothing_reads_is_refused_with_the_one_that_was_meant(wrong, right):
    sentence = refuse(**{wrong: 1})
    assert f"key '{wrong}' is not read by MEANTIME" in sentence
    assert right in sentence


def test_a_key_that_resembles_none_is_refused_with_the_way_to_let_it_through():
    assert "allow_unknown: True" in refuse(zzzzqqq=1)


def test_allow_unknown_lets_a_key_through_with_a_warning(caplog):
    config = Config("MEANTIME", "ml-100k", None, {"my_key": "[1, 2]", "allow_unknown": "True"}, argv=[])
    assert config["my_key"] == [1, 2]
    assert "my_key" in caplog.text


class Mine(SASRec):
    """A model of a user's own: reads keys that no property file has."""

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.spice = config["spice"]
        self.pepper = config["pepper"] if "salt" in config else 0


def test_the_keys_that_a_users_own_model_reads_are_known_and_its_parents_too():
    assert {"spice", "pepper", "salt", "hidden_act"} <= known_keys(Mine, [])
    config = Config(Mine, "ml-100k", None, {"spice": "1e-3", "hidden_size": 16}, argv=[])
    assert config["spice"] == 0.001
    assert config["model"] == "Mine"
    assert "spice" in refuse(Mine, "ml-100k", spicee=1)


@pytest.mark.parametrize(
    ("model", "key", "instead"),
    [
        ("MEANTIME", "n_heads", "attention heads are absolute_kernels and relative_kernels (one head for each kernel)"),
        ("MEANTIME", "dropout_prob", "its keys for dropout are hidden_dropout_prob and attn_dropout_prob"),
        ("MEANTIME", "dropout", "its keys for dropout are hidden_dropout_prob and attn_dropout_prob"),
        ("MEANTIME", "embedding_size", "its key for the size of vectors is hidden_size"),
        ("MEANTIME", "reg_weight", "its key for penalising large weights is weight_decay"),
        ("MEANTIME", "mlp_hidden_size", "its key for feed-forward layers is inner_size"),
        ("MEANTIME", "pretrain_epochs", "it is a key of RaCT and S3Rec"), ("MEANTIME", "time_gap", "a key of BST"),
        ("LightSANs", "mask_ratio", "transform: mask_itemseq reads it"),
        ("LightSANs", "train_window", "a key of MEANTIME"),
        ("BST", "hidden_size", "its key for the size of vectors is embedding_size"),
        ("BST", "loss_type", "leave it out"),
        ("BST", "attn_dropout_prob", "its key for dropout is hidden_dropout_prob"),
        ("BST", "eta", "crop_itemseq reads"),
        ("SASRec", "k_interests", "it is a key of LightSANs"), ("SASRec", "eta", "transform: crop_itemseq reads it"),
        ("GRU4Rec", "n_heads", "which has no key for attention heads; leave it out"),
        ("DIN", "loss_type", "leave it out"),
        ("recbole.LightSANs", "recbole_compat", "not read by recbole.LightSANs; it is a key of LightSANs"),
        ("BPR", "history", "models on the event log read it"), ("BPR", "exclude_history", "only sequential"),
        ("DIEN", "min_history", "models on the event log read it"), ("Pop", "hidden_size", "leave it out"),
    ],
)  # fmt: skip
def test_a_key_of_another_model_is_refused_with_what_the_model_has_instead(model, key, instead):
    value = {"history": "positive", "min_history": 2, "exclude_history": True, "loss_type": "BPR"}.get(key, 0.3)
    sentence = refuse(model, "ml-100k", **{key: value})
    assert key in sentence
    assert instead in sentence


@pytest.fixture(scope="module")
def keys_of_models(recbole_keys) -> set[str]:
    import recbole

    files = [*Path(recbole.__path__[0]).glob("properties/model/*.yaml"), *properties_dir().glob("model/*.yaml")]
    return set(keys_of(*map(str, files))) - set(recbole_keys)


@pytest.mark.parametrize("name", [*MODELS, "SASRec", "recbole.LightSANs", "BPR", "DIN"])
def test_what_is_suggested_is_read_by_the_model(name, keys_of_models):
    model = find_model(name)
    known = known_keys(model, Config(name, "ml-100k", argv=[]).internal_config_dict)
    others = keys_of_models - known
    assert len(others) > 200
    for key in others:
        sentence = unknown_key_sentence(key, known, name)
        named = re.findall("did you mean '(.+?)'", sentence)
        if found := re.search(r"its keys? for .+? (?:is|are) ([\w, ]+)", sentence):
            named += re.findall(r"\w+", found[1].replace(" and ", " "))
        assert set(named) <= known, sentence
        assert sentence.startswith(f"key '{key}' is not read by {name}")


@pytest.mark.parametrize(
    ("model", "keys"),
    [
        ("S3Rec", {"pretrain_epochs", "save_step", "item_attribute", "mask_ratio"}),
        ("NCL", {"m_step", "warm_up_step"}),
        ("RecVAE", {"n_enc_epochs", "n_dec_epochs"}), ("MKR", {"kge_interval"}), ("KTUP", {"train_rec_step"}),
        ("FEARec", {"tau", "sim"}), ("AFM", {"double_tower", "attention_size"}), ("KD_DAGFM", {"t_cin", "teacher"}),
        ("BERT4Rec", {"ft_ratio", "mask_ratio", "transform"}), ("KSR", {"preload_weight", "freeze_kg"}),
        ("GRU4RecKG", {"preload_weight"}), ("ConvNCF", {"embedding_size"}), ("SASRec", {"n_heads", "history"}),
        ("DIEN", {"alpha", "exclude_history"}), ("MEANTIME", {"preload_weight", "encoding", "tail_ratio", "log_dir"}),
    ],
)  # fmt: skip
def test_what_a_model_its_layers_its_trainer_and_its_data_set_read_is_known(model, keys):
    config = Config(model, "ml-100k", None, {"eval_args": {"order": "TO"}}, argv=[])
    assert keys <= known_keys(config.model_class, config.internal_config_dict, config["transform"])


class Refined(MEANTIME):
    """Refines a model of ours, and reads a key of another model in a helper."""

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        helper(config)


def helper(settings_config):
    return settings_config["n_heads"], settings_config.final_config_dict.get("sugar"), settings_config.cream


def test_a_users_own_class_knows_the_keys_of_its_base_and_of_its_helpers_only():
    Config(Refined, "ml-100k", None, {"n_heads": 4, "sugar": 1, "cream": 2, "train_window": 3}, argv=[])
    assert "is not read by Refined" in refuse(Refined, "ml-100k", dropout_prob=0.3)
    assert "is not read by Mine" in refuse(Mine, "ml-100k", train_window=3)


def test_a_class_without_source_knows_the_keys_in_its_code():
    space = {"__name__": "typed_in", "SASRec": SASRec}
    exec("class Typed(SASRec):\n def more(self, config):\n  return config['cinnamon']", space)
    Config(space["Typed"], "ml-100k", None, {"cinnamon": 1, "n_layers": 1}, argv=[])
    assert "is not read by Typed" in refuse(space["Typed"], "ml-100k", dropout_prob=0.3)


@pytest.mark.parametrize("way", ["argv", "config_dict", "file", "space"])
def test_a_key_of_another_model_is_refused_from_every_source(way, tmp_path):
    (tmp_path / "keys.yaml").write_text("n_heads: 4")
    config = Config("MEANTIME", "ml-100k", argv=[])
    requests = {
        "argv": lambda: Config("MEANTIME", "ml-100k", argv=["--n_heads=4"]),
        "config_dict": lambda: Config("MEANTIME", "ml-100k", None, {"n_heads": 4}, argv=[]),
        "file": lambda: Config("MEANTIME", "ml-100k", ["keys.yaml"], argv=[]),
        "space": lambda: check_space({"n_heads": {"grid": [1, 2, 4]}}, "the space", config),
    }
    with pytest.raises(InputError, match="key 'n_heads' is not read by MEANTIME"):
        requests[way]()


def test_a_preset_of_another_model_is_refused():
    assert "'n_heads' is not read by MEANTIME" in str(
        pytest.raises(InputError, Config, "MEANTIME", "ml-100k", ["BST-clicks"], argv=[]).value
    )


def test_a_key_that_describes_data_may_be_given_to_any_model_with_a_warning(caplog):
    Config("BPR", "ml-100k", None, {"MAX_ITEM_LIST_LENGTH": 20, "LIST_SUFFIX": "_list"}, argv=[])
    assert "key 'MAX_ITEM_LIST_LENGTH' has no effect: BPR does not read it" in caplog.text
    assert "LIST_SUFFIX" not in caplog.text  # as it is anyway
    Config("MEANTIME", "ml-100k", None, {"kg_reverse_r": True}, argv=[])
    assert "key 'kg_reverse_r' has no effect: MEANTIME does not read it" in caplog.text
    Config("BPR", "ml-100k", None, {"history": "all", "preload_weight": None}, argv=[])


def test_every_key_that_recbole_and_this_package_document_is_known(recbole_keys):
    package = keys_of(properties_file("MEANTIME"), properties_file("../overall"))
    known = known_keys(MEANTIME, [])
    assert set(recbole_keys) | {"time_unit", "history"} <= known | set(package)
    settled = {"repeatable": True, "eval_args": {}, "load_col": None, "train_neg_sample_args": None}
    Config("MEANTIME", "ml-100k", None, {**recbole_keys, **package, **settled}, argv=[])


def test_keys_of_a_program_that_uses_this_library_are_left_to_it(monkeypatch, caplog):
    words = [
        "prog",
        "--tb=short",
        "--config_files=a.yaml",
        "--device=cuda",
        "-x",
        "file.py",
        "--deselect=a",
        "--deselect=b",
        "--epochs=7",
        "--verbose",
    ]
    monkeypatch.setattr(sys, "argv", words)
    config = Config("MEANTIME", "ml-100k", None, {"epochs": 3})
    assert config["epochs"] == 7
    assert "tb" not in config
    assert "verbose" not in config
    assert "key 'tb' is not read" in caplog.text
    assert Config("MEANTIME", "ml-100k", None, {"epochs": 3}, argv=[])["epochs"] == 3


def test_a_notebooks_arguments_are_not_keys(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setattr(sys, "argv", ["ipykernel_launcher.py", "--epochs=7"])
    assert Config("MEANTIME", "ml-100k")["epochs"] != 7


# ---------------------------------------------------------------- values of keys

BAD_NUMBERS = ["abc", "None", "True", "1e999", math.nan]
MAY_BE_NONE = {"loss_decimal_place", "eval_memory_mb"}


def test_a_key_with_a_number_takes_no_other_value(recbole_keys):
    ours = keys_of(properties_file("MEANTIME"), properties_file("../overall"))
    numbers = {
        k: v for k, v in (recbole_keys | ours).items() if isinstance(v, (int, float)) and not isinstance(v, bool)
    }
    assert len(numbers) >= 24
    for key in numbers:
        for value in BAD_NUMBERS:
            if key in MAY_BE_NONE and value in (None, "None"):
                continue
            assert f"key '{key}' is" in refuse(**{key: value}), (key, value)


def test_a_key_with_a_truth_takes_no_other_value(recbole_keys):
    ours = keys_of(properties_file("MEANTIME"), properties_file("../overall"))
    truths = [key for key, value in (recbole_keys | ours).items() if isinstance(value, bool)]
    assert len(truths) >= 15
    for key in truths:
        for value in ("yes", 1, None):
            assert "should be True or False" in refuse(**{key: value}), (key, value)
        if key != "log_wandb":  # may not be installed
            assert Config("MEANTIME", "ml-100k", None, {key: "true"}, argv=[])[key] is True


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("train_batch_size", [0, -1, 1.5]), ("eval_batch_size", [0, -1]), ("MAX_ITEM_LIST_LENGTH", [0, -1, 2.5]),
        ("learning_rate", [0, -0.1]), ("weight_decay", [-1e-9]), ("epochs", [-1, 1.5]), ("stopping_step", [-1]),
        ("eval_step", [-1]), ("seed", [-1, 2**32]), ("worker", [-1]), ("hidden_size", [0, -8]), ("inner_size", [0]),
        ("hidden_dropout_prob", [-0.1, 1, 1.5]), ("attn_dropout_prob", [-0.1, 1]), ("layer_norm_eps", [0, -1]),
        ("initializer_range", [-0.1]), ("mask_ratio", [0, -0.1, 1.1]), ("metric_decimal_place", [-1, 99]),
        ("loss_decimal_place", [-1]), ("eval_memory_mb", [0, -5]), ("topk", [0, -1, 2.5, "abc", [], [0], ["5"], None]),
        ("metrics", ["Foo", [], [1], {"a": 1}, None, ["NDCG", "Foo"]]), ("learner", ["foo", None, 5, ""]),
        ("state", ["loud", 5]), ("transform", ["foo"]), ("rm_dup_inter", ["foo", True]),
        ("user_inter_num_interval", ["foo", 5, "[1]", "[1,2"]), ("val_interval", [5, {"rating": "3"}]),
        ("threshold", [3, {"rating": "a"}, {"rating": None}, {"rating": 3, "timestamp": 4}, {}]),
        ("clip_grad_norm", [5, {"max_norm": -1}, {"max_norm": 0}, {"max_nrm": 5}, {"max_norm": "a"},
                            {"norm_type": 2}]),
        ("train_neg_sample_args", ["uniform", 5, [], {"distribution": "normal"}, {"sample_num": 0}, {"foo": 1}]),
        ("load_col", [5, ["user_id"], {"inter": [["a"]]}, {"inter": None}, {"inter": [None]}]),
        ("unload_col", [5, ["timestamp"], {"inter": None}]),
        ("seq_len", [5, {"a": 0}]), ("unused_col", [5, {"inter": None}]),
        ("discretization", [5, {"a": None}, {"a": {"bucket": 3}}]), ("field_separator", ["", None]),
        ("LIST_SUFFIX", [""]),
        ("data_path", ["", None]),
        ("checkpoint_dir", ["", None, True]), ("numerical_features", [None, {"a": 1}]), ("gpu_id", [{"a": 1}, "a b"]),
        ("eval_args", [
            5, None, "TO_LS,full", {"splt": {}}, {"split": "LS"}, {"split": None}, {"split": {}}, {"split": {"XX": 1}},
            {"split": {"LS": "valid_and_tst"}}, {"split": {"RS": [0.8, 0.2]}}, {"split": {"RS": "a"}},
            {"split": {"RS": [0.8, -0.1, 0.3]}}, {"split": {"LS": "valid_only", "RS": [8, 1, 1]}},
            {"mode": "uni"}, {"mode": "uni0"}, {"mode": "uni-5"}, {"mode": "ful"}, {"mode": 5}, {"mode": None},
            {"mode": "uni-unseen"}, {"mode": "full-unseen"}, {"mode": "pop5-seen"},
            {"mode": {"tst": "full"}}, {"mode": {"valid": "unix"}}, {"group_by": "usr"}, {"order": "XX"},
            {"order": None},
        ]),
    ],
)  # fmt: skip
def test_a_value_that_a_key_does_not_take_is_refused_with_what_would_be_right(key, values):
    for value in values:
        sentence = refuse(**{key: value})
        assert f"key '{key}" in sentence, value
        assert "it should be" in sentence, value


def test_values_are_tidied():
    given = {
        "epochs": 5.0, "topk": "(3, 7)", "metrics": "ndcg", "valid_metric": "NDCG@7", "learner": "ADAM",
        "train_batch_size": np.int64(4), "learning_rate": np.float32(0.5), "clip_grad_norm": {"max_norm": np.int64(2)},
        "eval_args": {"order": "to"}, "dataset": None, "user_inter_num_interval": "[2,inf)", "wandb_project": 2023,
    }  # fmt: skip
    config = Config("MEANTIME", "ml-100k", None, given, argv=[])
    assert (config["epochs"], config["topk"], config["metrics"], config["learner"]) == (5, [3, 7], ["NDCG"], "adam")
    assert type(config["epochs"]) is int
    assert type(config["train_batch_size"]) is int
    assert config["learning_rate"] == 0.5
    assert type(config["learning_rate"]) is float
    assert config["clip_grad_norm"] == {"max_norm": 2}
    assert config["eval_args"]["order"] == "TO"
    assert config["user_inter_num_interval"] == "[2,inf)"
    assert config["wandb_project"] == "2023"


def test_a_whole_default_in_recboles_files_takes_a_fraction_where_recbole_means_one():
    assert Config("SASRecCPR", "ml-100k", None, {"hidden_dropout_prob": 0.3}, argv=[])["hidden_dropout_prob"] == 0.3
    assert Config("FEARec", "ml-100k", None, {"global_ratio": 0.6}, argv=[])["global_ratio"] == 0.6
    assert "global_ratio" in refuse("FEARec", "ml-100k", global_ratio="abc")
    assert "mlp_hidden_size" in refuse("MultiVAE", "ml-100k", mlp_hidden_size="abc")
    assert Config("MultiVAE", "ml-100k", None, {"mlp_hidden_size": 5}, argv=[])["mlp_hidden_size"] == [5]


def test_text_that_recbole_would_evaluate_as_a_class_is_only_a_name(tmp_path):
    code = f"__import__('pathlib').Path({str(tmp_path / 'marker')!r}).touch"
    assert "the name of a class" in refuse("KD_DAGFM", "ml-100k", teacher=code)


# ---------------------------------------------------------------- values that fit nowhere


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"hidden_size": 10**30}, "of at most 18 digits"), ({"epochs": 2**64}, "of at most 18 digits"),
        ({"eval_args": {"mode": "uni12345678901234567890"}}, "a whole number N"),
        ({"encoding": "utf-99"}, "key 'encoding' is 'utf-99'; it should be a known encoding"),
        ({"encoding": "rot13"}, "a known encoding"), ({"encoding": "utf-8\0"}, "a known encoding"),
        ({"eval_memory_mb": 10**400}, "a number in"),
        ({"learning_rate": 1e38}, r"a number in \(0, 1e6\]"), ({"checkpoint_dir": "a\0b"}, "should be a text"),
        ({"transform": "user_defined"}, "one of mask_itemseq, inverse_itemseq, crop_itemseq, reorder_itemseq"),
        ({"time_unit": "sec"}, "one of s, ms, us, ns, D"), ({"history": "some"}, "one of all, positive"),
        ({"config_files": "a.yaml"}, "config_files cannot be a key"),
        ({"MODEL_TYPE": 1, "allow_unknown": True}, "'MODEL_TYPE' is derived from other keys and cannot be set"),
        ({"device": "cpu", "allow_unknown": True}, "write use_gpu or gpu_id"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_that_fits_nowhere_is_refused(keys, sentence):
    assert re.search(sentence, refuse(**keys))


def test_a_whole_number_that_64_bits_do_not_hold_is_a_float_where_any_number_goes():
    rate = Config("MEANTIME", "ml-100k", None, {"weight_decay": 10**30}, argv=[])["weight_decay"]
    assert (rate, type(rate)) == (1e30, float)


def test_the_units_of_time_are_those_that_the_data_knows():
    assert list(VALIDATORS["time_unit"].choices.values()) == list(SECONDS)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"config_dict": [1]}, r"config_dict is \[1\]; it should be a dictionary"),
        ({"config_file_list": 5}, "config_file_list is 5; it should be a list of paths"),
        ({"argv": [5]}, "argument '5' is not understood"),
        ({"argv": "--epochs=5"}, "argv is '--epochs=5'; it should be a list of texts"),
        ({"config_dict": {5: 1}}, "key '5' is not read"),
    ],
)
def test_arguments_of_another_type_are_refused(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        Config("MEANTIME", "ml-100k", **{"argv": [], **arguments})


@pytest.mark.parametrize(
    ("model", "keys", "unread"),
    [
        ("MEANTIME", {"objective": "next", "mask_ratio": 0.3}, ["mask_ratio"]),
        ("MEANTIME", {"loss_type": "CE", "num_negatives": 7}, ["num_negatives"]),
        ("MEANTIME", {"num_negatives": 7, "logq_correction": False}, []),
        ("MEANTIME", {"loss_type": "SSM", "num_negatives": 7, "gbce_calibration": 0.5}, ["gbce_calibration"]),
        ("LightSANs", {"loss_type": "gBCE", "logq_correction": False}, ["logq_correction"]),
        ("LightSANs", {"loss_type": "BPR", "negative_distribution": "mixed"}, ["negative_distribution"]),
        ("LightSANs", {"loss_type": "BCE", "num_negatives": 7, "negative_distribution": "mixed"}, []),
        ("TiSASRec", {"interval_unit": 60.0}, ["interval_unit"]),
        ("TiSASRec", {"interval_unit": 60.0, "time_interval": "global", "num_negatives": 7}, []),
        ("MEANTIME", {"mask_ratio": 0.3}, []), ("MEANTIME", {"objective": "next", "mask_ratio": 0.2}, []),
    ],
)  # fmt: skip
def test_a_key_that_other_keys_make_useless_is_said(model, keys, unread, caplog):
    Config(model, "ml-100k", None, keys, argv=[])
    said = re.findall("key '([a-z_]+)' has no effect with the other keys", caplog.text)
    assert sorted(said) == unread
