"""Keys that name columns: a column that is missing, not loaded or of another type is refused before it is read."""

import pytest

from recbole_ext import InputError
from recbole_ext.data import create_dataset

RATED = ("user_id:token", "item_id:token", "timestamp:float", "rating:float")
INTER = ["user_id", "item_id", "timestamp", "rating"]
ITEM = ["item_id", "genre", "tags", "price"]
ALL = {"inter": INTER, "item": ITEM}


@pytest.fixture
def refuse(make_config, write_events, write_lines, random_events):
    """The sentence that refuses a data set of rated events and items with a genre, tags and a price."""
    path = write_events([(*event, index % 5 + 1) for index, event in enumerate(random_events())], RATED)
    lines = [f"i{number}\tg{number % 3}\ta b\t{number}" for number in range(20)]
    write_lines("item", "item_id:token\tgenre:token\ttags:token_seq\tprice:float", *lines)

    def refuse(model="SASRec", **keys) -> str:
        with pytest.raises(InputError) as caught:
            create_dataset(make_config(model, data_path=path, **{"load_col": ALL, **keys}))
        said = str(caught.value)
        assert "\n" not in said
        return said

    return refuse


CONTEXT = {"metrics": ["AUC"], "valid_metric": "AUC", "threshold": {"rating": 3}}


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        ("SASRecF", "selected_features", ["nothing"]), ("GRU4RecF", "selected_features", ["nothing", "genre"]),
        ("FDSA", "selected_features", "nothing"), ("S3Rec", "item_attribute", "nothing"),
        ("SASRec", "numerical_features", ["nothing"]), ("SASRec", "normalize_field", ["nothing"]),
        ("SASRec", "seq_len", {"nothing": 3}), ("SASRec", "val_interval", {"nothing": "[1,2]"}),
        ("SASRec", "threshold", {"nothing": 3}), ("SASRec", "alias_of_item_id", ["nothing"]),
        ("SASRec", "alias_of_user_id", ["nothing"]), ("SASRec", "unused_col", {"inter": ["nothing"]}),
        ("SASRec", "unused_col", {"item": ["nothing"]}), ("SASRec", "load_col", {**ALL, "item": [*ITEM, "nothing"]}),
        ("SASRec", "unload_col", {"item": ["nothing"]}), ("BST", "context_features", ["nothing"]),
        ("BST", "cross_features", [["nothing", "genre"]]), ("BPR", "USER_ID_FIELD", "nothing"),
        ("BPR", "ITEM_ID_FIELD", "nothing"), ("SASRec", "TIME_FIELD", "nothing"),
        ("SASRec", "discretization", {"nothing": {"method": "LD"}}),
    ],
)  # fmt: skip
def test_a_column_that_is_missing_is_named_with_its_key_and_the_columns_there_are(refuse, model, key, value):
    keys = {key: value} | ({"load_col": None} if key[0].isupper() else {})
    if key == "unload_col":
        keys["load_col"] = None
    if key in ("threshold", "val_interval", "numerical_features", "normalize_field", "alias_of_item_id",
               "alias_of_user_id", "discretization"):  # fmt: skip
        keys["load_col"] = None  # with a list, it is refused when the keys are read
    said = refuse(model, **keys)
    assert key in said
    assert "'nothing'" in said
    assert "genre" in said or "rating" in said


@pytest.mark.parametrize(
    ("model", "keys", "sentence"),
    [
        ("SASRecF", {}, "toy.item has no column 'class', which selected_features names; it has item_id, genre, tags"),
        ("SASRecF", {"load_col": {"inter": INTER}, "selected_features": ["genre"]},
         "selected_features names 'genre', a column of"),
        ("SASRecF", {"selected_features": ["price"]}, "'price', a float that is missing in numerical_features; add"),
        ("SASRecF", {"selected_features": ["gener"]}, "toy.item has no column 'gener'"),
        ("SASRecF", {"selected_features": ["gener"]}, ": write genre."),
        ("SASRecF", {"selected_features": []}, "key 'selected_features' is []; it should be a list of at least one"),
        ("SASRecF", {"selected_features": [None]}, "key 'selected_features' is [None]"),
        ("SASRec", {"numerical_features": ["item_id"]},
         "line 1: 'item_id:token' is named by numerical_features; it should be item_id:float or item_id:float_seq"),
        ("SASRec", {"numerical_features": ["tags"]}, "'tags:token_seq' is named by numerical_features"),
        ("BPR", {"numerical_features": ["item_id"]}, "'item_id:token' is named by numerical_features"),
        ("SASRec", {"normalize_field": ["genre"]}, "'genre:token' is named by normalize_field"),
        ("SASRec", {"seq_len": {"genre": 3}}, "'genre:token' is named by seq_len"),
        ("SASRec", {"alias_of_item_id": ["price"]}, "'price:float' is named by alias_of_item_id"),
        ("SASRec", {"alias_of_item_id": ["genre"], "alias_of_user_id": ["genre"]}, "both name 'genre'"),
        ("BPR", {"val_interval": {"genre": "[1,2]"}}, "val_interval has '[1,2]' for 'genre', a token"),
        ("SASRec", {"discretization": {"price": {"method": "LD"}}}, "which is missing in numerical_features"),
        ("SASRec", {"discretization": {"price": {"method": "ED"}}, "numerical_features": ["price"]},
         "without bucket, the number of buckets"),
        ("SASRec", {"discretization": {"price": {}}, "numerical_features": ["price"]}, "has no method for 'price'"),
        ("SASRec", {"discretization": {"price": None}}, "key 'discretization.price' is None; it should be a mapping"),
        ("SASRec", {"normalize_field": ["price"], "normalize_all": True}, "leave one of them out"),
        ("SASRec", {"additional_feat_suffix": ["emb"]}, "additional_feat_suffix names 'emb', but there is no file"),
        ("SASRec", {"additional_feat_suffix": ["item"]}, "a file that is always read"),
        ("SASRec", {"unused_col": {"user": ["age"]}}, "unused_col has columns of 'user', but there is no file"),
        ("SASRec", {"load_col": {**ALL, "user": ["age"]}}, "load_col names 'age' of 'user', but there is no file"),
        ("SASRec", {"alias_of_user_id": ["item_id"]}, "names 'item_id', but so does ITEM_ID_FIELD"),
        ("BPR", {"load_col": {"inter": ["item_id"]}}, "USER_ID_FIELD names 'user_id', a column of"),
        ("DMF", {"inter_matrix_type": "rating", "load_col": {"inter": ["user_id", "item_id"]}},
         "RATING_FIELD names 'rating', a column of"),
    ],
)  # fmt: skip
def test_a_column_that_a_key_cannot_use_is_refused(refuse, model, keys, sentence):
    labels = CONTEXT | {"eval_args": {"mode": "labeled"}} if model == "FM" else {}
    assert sentence in refuse(model, **{**labels, **keys})


def test_columns_that_are_made_of_others_may_be_left_out(make_config, write_events, random_events):
    path = write_events([(*event, index % 5 + 1) for index, event in enumerate(random_events())], RATED)
    keys = {"load_col": {"inter": INTER}, "threshold": {"rating": 3}, "unused_col": {"inter": ["rating_list", "label"]}}
    create_dataset(make_config("SASRec", data_path=path, **keys))


def test_a_general_model_in_order_of_time_reads_the_time(make_config, write_events, random_events):
    path = write_events(random_events())
    config = make_config("BPR", data_path=path, eval_args={"order": "TO", "split": {"RS": [0.8, 0.1, 0.1]}})
    assert create_dataset(config).time_field in config["load_col"]["inter"]
