"""`preload_weight`: item tables that begin with pretrained vectors."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from recbole_ext import InputError, Recommender, create_dataset, data_preparation, load_data_and_model, run_recbole
from recbole_ext.model.bst.features import key_of

KEYS = {"additional_feat_suffix": ["emb"], "alias_of_item_id": ["iid"], "preload_weight": {"iid": "vector"}}
SIZES = {
    "MEANTIME": {"hidden_size": 4}, "LightSANs": {"hidden_size": 4}, "BST": {"embedding_size": 4},
    "TiSASRec": {"hidden_size": 4},
}  # fmt: skip
SMALL = {"MEANTIME": {"absolute_kernels": ["day"], "relative_kernels": ["log"]}, "BST": {"n_heads": 1}}
LINES = [f"i{number}\t{number} 1 2 3" for number in range(15)]


@pytest.fixture
def vectors(write_lines):
    """Write the file of the vectors: of some items of the data set, and of two others."""

    def write(*lines: str, header: str = "iid:token\tvector:float_seq", suffix: str = "emb") -> None:
        write_lines(suffix, header, *(lines or (*LINES, "cold\t9 9 9 9", "colder\t9 9 9 9")))

    return write


def table(model) -> torch.Tensor:
    if hasattr(model, "item_features"):
        return model.item_features.embeddings[key_of(model.ITEM_ID)].weight
    return model.item_embedding.weight


@pytest.mark.parametrize("model", SIZES)
def test_items_begin_with_their_vectors_and_others_as_they_would(model, vectors, make_config, caplog):
    caplog.set_level("INFO")
    keys = SIZES[model] | SMALL.get(model, {})
    weights = []
    for extra in ({}, KEYS):
        vectors()
        config = make_config(model, **keys, **extra, state="info")
        dataset = create_dataset(config)
        train, *_ = data_preparation(config, dataset)
        torch.manual_seed(0)
        weights.append(table(config.model_class(config, train._dataset)))
    tokens = dataset.field2id_token["item_id"]
    assert set(tokens) == {"[PAD]", *(f"i{number}" for number in range(20))}  # cold ones are no items for that
    for number, token in enumerate(tokens):
        with_vector = token != "[PAD]" and int(token[1:]) < 15
        right = torch.tensor([int(token[1:]), 1.0, 2.0, 3.0]) if with_vector else weights[0][number]
        assert torch.equal(weights[1][number], right)
    assert torch.equal(weights[0][len(tokens) :], weights[1][len(tokens) :])
    assert "15 of 20 items have a vector" in caplog.text
    assert "2 vectors of unknown items ignored" in caplog.text


def test_vectors_may_stand_in_the_item_file(make_config, vectors):
    vectors(*LINES, header="item_id:token\tvector:float_seq", suffix="item")
    dataset = create_dataset(make_config(preload_weight={"item_id": "vector"}, hidden_size=4))
    number = list(dataset.field2id_token["item_id"]).index("i7")
    assert dataset.get_preload_weight("item_id")[number].tolist() == [7, 1, 2, 3]


@pytest.mark.parametrize(
    ("lines", "keys", "sentence"),
    [
        ((), {"hidden_size": 8}, "hidden_size is 8, but the vectors that preload_weight names have 4 numbers; set"),
        (("i1\t1 2", "i2\t1 2 3"), {}, "toy.emb line 3: vector has another length than the first vector, 2"),
        (("i1\t1 2", "i2\t"), {}, "toy.emb line 3: vector is empty"),
        (("i1\t1 2", "i1\t1 2"), {}, "toy.emb line 3: the item has a vector in an earlier line"),
        (("i1\t1 2", "\t1 2"), {}, "toy.emb line 3: no iid"),
        (("i1\t1 2", "i2\t1 x"), {}, "toy.emb line 3: vector is '1 x'; all should be finite numbers"),
        (("i1\t1 2", "i2\t1 inf"), {}, "all should be finite numbers"),
        (("i1\t1e39 2 3 4", "i2\t1 2 3 4"), {}, "all should be finite numbers, below 3.4e38"),
        (("x1\t1 2 3 4",), {}, "toy.emb: none of its 1 vectors belongs to an item of the data set; iid should contain"),
        ((), {"alias_of_item_id": None}, "preload_weight names 'iid', which is missing in alias_of_item_id; add"),
        ((), {"preload_weight": {"iid": "vec"}}, "names 'iid' and 'vec', but no file of additional_feat_suffix has"),
        ((), {"preload_weight": {"iid": "vector", "x": "y"}}, "it should have one column of item ids and one"),
        ((), {"preload_weight": "iid"}, "key 'preload_weight' is 'iid'; it should be a mapping"),
        ((), {"additional_feat_suffix": ["none"]}, "additional_feat_suffix names 'none', but there is no file"),
    ],
)  # fmt: skip
def test_vectors_that_cannot_be_used_are_refused(make_model, vectors, lines, keys, sentence):
    vectors(*lines)
    with pytest.raises(InputError) as caught:
        make_model(**{**KEYS, "hidden_size": 4, **keys})
    assert sentence in str(caught.value)


@pytest.mark.parametrize("header", ["iid:float\tvector:float_seq", "iid:token\tvector:token_seq"])
def test_columns_of_another_type_are_refused(make_config, vectors, header):
    vectors("1\t1 2", header=header)
    with pytest.raises(InputError, match="line 1: 'iid:float' is named|line 1: 'vector:token_seq' is named"):
        create_dataset(make_config(**KEYS))


@pytest.mark.parametrize("model", ["SASRec", "BPR", "recbole.LightSANs", "FM"])
def test_a_model_that_reads_no_vectors_refuses_them(make_config, model):
    with pytest.raises(InputError, match="key 'preload_weight' is not read by .*: it reads no pretrained vectors"):
        make_config(model, **KEYS)


def test_a_checkpoint_needs_no_vectors(make_config, vectors, no_waiting):
    vectors()
    config = make_config(hidden_size=4, **KEYS)
    keys = {key: config[key] for key in config.user_keys}
    path = run_recbole("MEANTIME", "toy", None, keys, argv=[])["checkpoint"]
    os.unlink(Path(config["data_path"]) / "toy.emb")
    weights = torch.load(path, weights_only=True)["state_dict"]["item_embedding.weight"]
    _, model, *_ = load_data_and_model(path)
    assert torch.equal(table(model).cpu(), weights.cpu())
    assert np.array_equal(table(Recommender.load(path).model).detach().cpu(), weights.cpu())
    result = run_recbole(config_dict={"epochs": 3}, argv=[], resume=path)
    assert result["config"]["epochs"] == 3
