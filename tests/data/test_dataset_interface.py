"""Our data sets have what RecBole's sequential data set has: every public attribute, property and method."""

import copy
import inspect
from collections import Counter

import numpy as np
import pytest
import torch
from recbole.data.dataset import SequentialDataset
from recbole.data.interaction import Interaction, cat_interactions
from recbole.data.transform import construct_transform
from recbole.utils import FeatureSource, FeatureType

from recbole_ext import EventLogDataset, create_dataset
from recbole_ext.data.presplit import PreSplitDataset

COLUMNS = ("user_id:token", "item_id:token", "timestamp:float", "rating:float", "label:float")
LISTS = ("item_id_list:token_seq", "timestamp_list:float_seq")
PRESPLIT = {"benchmark_filename": ["train", "valid", "test"], "alias_of_item_id": ["item_id_list"]}


@pytest.fixture
def files(write_lines):
    """Users, items and events at times that all differ, as one file and as three with histories; returns the keys."""
    write_lines("user", "user_id:token\tage:float", *(f"u{user}\t{user}" for user in range(9)))
    write_lines("item", "item_id:token\tprice:float", *(f"i{item}\t{item / 2}" for item in range(12)))
    events = [
        (f"u{user}", f"i{(user * 5 + n * 7) % 12}", 100 * n + user, (user + n) % 5 + 1, n % 2)
        for user in range(9)
        for n in range(6)
    ]
    lines = ["\t".join(map(str, event)) for event in events]
    path = write_lines("inter", "\t".join(COLUMNS), *lines)
    header = "\t".join((*COLUMNS, *LISTS))
    for part, place in (("train", 3), ("valid", 4), ("test", 5)):
        given = []
        for user in range(9):
            own = [event for event in events if event[0] == f"u{user}"]
            past = [" ".join(str(event[column]) for event in own[:place]) for column in (1, 2)]
            given.append("\t".join([*map(str, own[place]), *past]))
        write_lines(f"{part}.inter", header, *given)
    return {"data_path": path, "load_col": None}


@pytest.fixture(params=["SASRec", "MEANTIME", "presplit"])
def pairs(request, files, make_config):
    """Our data set and RecBole's of the same keys: [whole, training, validation, test] of each."""
    keys = {**files, **(PRESPLIT if request.param == "presplit" else {})}
    config = make_config("SASRec" if request.param == "presplit" else request.param, **keys)
    ours, stock = create_dataset(config), SequentialDataset(config)
    assert type(ours) is (PreSplitDataset if request.param == "presplit" else EventLogDataset)
    return list(zip([ours, *ours.build()], [stock, *stock.build()], strict=True))


def attributes(dataset) -> set[str]:
    return {name for name in dir(dataset) if not name.startswith("_")}


def test_every_public_name_of_recboles_data_set_is_there(pairs):
    for ours, stock in pairs:
        assert attributes(stock) - attributes(ours) == set()


@pytest.mark.parametrize("presplit", [False, True])
def test_every_public_name_is_there_before_the_split(files, make_config, presplit):
    config = make_config("SASRec", **files, **(PRESPLIT if presplit else {}))
    assert attributes(SequentialDataset(config)) - attributes(create_dataset(config)) == set()


def test_plain_values_are_those_of_recbole(pairs):
    exact = {"inter_feat", "user_feat", "item_feat", "config", "logger"}  # tables, and what is not of the data
    for ours, stock in pairs:
        for name in attributes(stock) - exact:
            value = getattr(stock, name)
            if isinstance(value, Counter):  # in the order of the events, which are sorted here
                assert getattr(ours, name) == value, name
            elif not inspect.ismethod(value):
                assert str(getattr(ours, name)) == str(value), name


def total(*tables) -> list[float]:
    return [float(np.asarray(table.toarray() if hasattr(table, "toarray") else table).sum()) for table in tables]


CALLS = {
    "num": lambda data: [data.num(name) for name in ("item_id", "user_id", "age", "price")],
    "fields": lambda data: (sorted(data.fields()), sorted(data.fields([FeatureType.TOKEN], [FeatureSource.USER_ID]))),
    "token2id": lambda data: data.token2id("item_id", ["i1", "i2"]).tolist(),
    "id2token": lambda data: data.id2token("item_id", [1, 2]).tolist(),
    "id2token of lists": lambda data: data.id2token("item_id", data.inter_feat["item_id_list"][:, :3]).tolist(),
    "counter": lambda data: sorted(data.counter("item_id").items()),
    "field2feats": lambda data: [len(table) for table in data.field2feats("item_id")],
    "set_field_property": lambda data: data.set_field_property("new", FeatureType.TOKEN, FeatureSource.ITEM, 1),
    "copy_field_property": lambda data: data.copy_field_property("copy", "rating"),
    "inter_matrix": lambda data: total(data.inter_matrix(), data.inter_matrix("csr", "rating")),
    "history_item_matrix": lambda data: total(*data.history_item_matrix(), *data.history_item_matrix("rating")),
    "history_user_matrix": lambda data: total(*data.history_user_matrix(max_history_len=50)),
    "get_user_feature": lambda data: total(data.get_user_feature()["age"]),
    "get_item_feature": lambda data: total(data.get_item_feature()["price"]),
    "join": lambda data: total(data.join(data.inter_feat[:4])["price"]),
    "copy": lambda data: (len(data.copy(data.inter_feat[:2])), sorted(data.copy(data.inter_feat[:2])[:1].columns)),
    "split_by_ratio": lambda data: [len(part) for part in data.copy(data.inter_feat).split_by_ratio([0.5, 0.5])],
    "leave_one_out": lambda data: [
        len(part) for part in data.copy(data.inter_feat).leave_one_out("user_id", "valid_only")
    ],
    "time_based_split": lambda data: [
        len(part) for part in data.copy(data.inter_feat).time_based_split([0.5, 0.2, 0.3], "user_id")
    ],
    "sort": lambda data: (data.sort("rating"), data.inter_feat["rating"].tolist())[1],
    "shuffle": lambda data: (data.shuffle(), sorted(data.inter_feat["item_id"].tolist()))[1],
    # of the table
    "columns": lambda data: sorted(data.inter_feat.columns),
    "iteration": lambda data: sorted(data.inter_feat),
    "attribute": lambda data: total(data.inter_feat.item_id),
    "interaction": lambda data: [
        sorted(data.inter_feat.interaction), total(data.inter_feat.interaction.get("rating")),
        len(list(data.inter_feat.interaction.values())), data.inter_feat.interaction.get("nothing"),
    ],
    "to": lambda data: sorted(data.inter_feat.to("cpu", "item_id").columns),
    "cpu": lambda data: sorted(data.inter_feat.cpu().columns),
    "numpy": lambda data: sorted(data.inter_feat.numpy()),
    "repeat": lambda data: len(data.inter_feat[:3].repeat(2)),
    "repeat_interleave": lambda data: total(data.inter_feat[:3].repeat_interleave(2)["item_id"]),
    "cat_interactions": lambda data: len(cat_interactions([data.inter_feat[:3], data.inter_feat[:2]])),
    "deepcopy": lambda data: total(copy.deepcopy(data.inter_feat)["rating"]),
    "length": lambda data: (data.inter_feat.length, len(data.inter_feat)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_methods_return_what_recboles_return(pairs, name):
    for ours, stock in pairs[1:]:
        assert str(CALLS[name](ours)) == str(CALLS[name](stock))


def test_no_method_of_recboles_data_set_is_left_out_of_this_table():
    other = {"build", "save", "get_preload_weight"}  # made here, writes a pickle, needs a key of its own
    methods = {name for name, _ in inspect.getmembers(SequentialDataset, inspect.isfunction) if name[0] != "_"}
    assert methods - {"data_augmentation"} - other <= set(CALLS)


@pytest.mark.parametrize("model", ["SASRec", "MEANTIME", "presplit"])
def test_a_new_column_of_the_table_is_in_batches_or_one_sentence_says_what_to_do(files, make_config, model):
    keys = {**files, **(PRESPLIT if model == "presplit" else {})}
    parts = create_dataset(make_config("SASRec" if model == "presplit" else model, **keys)).build()
    for part in parts:
        values = torch.arange(len(part.inter_feat))
        if part.windows is not None:
            with pytest.raises(TypeError, match="column 'new' would not reach the model, which learns from windows"):
                part.inter_feat["new"] = values
            assert "new" not in part.inter_feat
            part = part.copy(part.inter_feat)  # noqa: PLW2901
        part.inter_feat["new"] = values
        part.inter_feat["rating"] = values / 2
        batch = part[np.array([2, 0])]
        assert batch["new"].tolist() == [2, 0]
        assert batch["rating"].tolist() == [1, 0]
        assert part.inter_feat[1:3]["new"].tolist() == [1, 2]


SHARES = {"mask_itemseq": {"mask_ratio": 0.9}, "crop_itemseq": {"eta": 0.6}, "reorder_itemseq": {"beta": 0.9}}


@pytest.mark.parametrize("name", ["mask_itemseq", "inverse_itemseq", "crop_itemseq", "reorder_itemseq"])
@pytest.mark.parametrize("presplit", [False, True])
def test_recboles_transforms_take_the_whole_table(files, make_config, name, presplit):
    keys = {**files, **(PRESPLIT if presplit else {}), "transform": name, **SHARES.get(name, {})}
    config = make_config("BERT4Rec" if name == "mask_itemseq" else "SASRec", **keys)
    for part in create_dataset(config).build():
        before, transform = set(part.inter_feat.columns), construct_transform(config)
        lists = part.inter_feat[part.item_id_list_field].clone()
        changed = transform(part, part.inter_feat)
        new = set(changed.columns) - before
        assert new
        assert all(len(changed[column]) == len(part.inter_feat) for column in new)
        assert torch.equal(changed[part.item_id_list_field], lists)
        batch = part[np.arange(2)] if name != "mask_itemseq" else changed[:2].gather()
        assert isinstance(batch, Interaction)
        assert new <= set(batch.columns)
