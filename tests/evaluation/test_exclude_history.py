"""`exclude_history`: rankings without what the user has had before."""

import logging

import pytest
import torch

from recbole_ext import InputError, create_dataset, data_preparation, get_trainer
from recbole_ext.evaluation.best_items import RankedItems

SMALL = {"metric_decimal_place": 12, "topk": [8], "valid_metric": "NDCG@8", "exclude_history": True}
RANKING = ("MEANTIME", "LightSANs", "TiSASRec")  # without a matrix of all scores


@pytest.fixture
def evaluated(make_config, random_events):
    """Evaluate an untrained model; returns the metrics, and of each test row its scores and all earlier items.

    Models that rank without all scores have those of the best items, and -inf for the others.
    """

    def make(model="MEANTIME", **keys):
        events = random_events(users=25, items=30, longest=14)
        config = make_config(model, events, **{**SMALL, **keys})
        torch.manual_seed(0)
        train, _, test = data_preparation(config, create_dataset(config))
        trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
        seen = []
        first = trainer._full_sort_batch_eval

        def noting(batch):
            found = first(batch)
            scores = found[1]
            if isinstance(scores, RankedItems):
                scores = torch.full((len(scores.items), 31), -torch.inf).scatter(1, scores.items, scores.scores)
            seen.extend(zip(found[0]["user_id"].tolist(), found[0]["item_id"].tolist(), scores.clone(), strict=True))
            return found

        trainer._full_sort_batch_eval = noting
        result = trainer.evaluate(test, load_best_model=False)
        users, items = (test._dataset.field2id_token[name] for name in ("user_id", "item_id"))
        earlier: dict[str, list[str]] = {}
        for user, item, _ in sorted(events, key=lambda event: event[2]):
            earlier.setdefault(user, []).append(item)
        rows = []
        for user, target, scores in seen:
            had = earlier[users[user]]
            assert had[-1] == items[target]
            rows.append((items, target, scores, set(had[:-1])))
        return result, rows

    return make


@pytest.mark.parametrize("model", ["MEANTIME", "LightSANs", "BST", "TiSASRec", "SASRec", "DIN"])
def test_no_item_of_the_whole_history_is_ranked(evaluated, model):
    keys = {"metrics": ["NDCG", "Hit"], "eval_args": {"mode": "full"}}
    result, rows = evaluated(model, eval_batch_size=7, MAX_ITEM_LIST_LENGTH=4, **keys)
    hits = 0
    for items, target, scores, had in rows:
        hidden = {items[place] for place in torch.nonzero(scores == -torch.inf).flatten().tolist()}
        if model in RANKING:
            assert hidden >= {"[PAD]", *had}
            assert len(items) - len(hidden) == 8
        else:
            assert hidden == {"[PAD]", *had}
        hits += target in scores.topk(8).indices.tolist()
    assert any(len(had) > 4 for *_, had in rows)
    assert result["hit@8"] == pytest.approx(hits / len(rows))
    plain, rows = evaluated(model, MAX_ITEM_LIST_LENGTH=4, exclude_history=False, **keys)
    assert all((scores == -torch.inf).sum() == (31 - 8 if model in RANKING else 1) for _, _, scores, _ in rows)
    assert plain != result


def test_targets_that_are_in_their_own_history_are_counted_and_missed(evaluated, caplog):
    with caplog.at_level(logging.INFO):
        _, rows = evaluated()
    repeated = [scores[target] for items, target, scores, had in rows if items[target] in had]
    assert 0 < len(repeated) < len(rows)
    assert all(score == -torch.inf for score in repeated)
    assert f"{len(repeated)} of {len(rows)} targets are in their own history" in caplog.text


def test_too_few_items_left_are_refused(evaluated):
    with pytest.raises(InputError, match=r"exclude_history leaves \d+ items to rank for user 'u\d+', but topk is 28"):
        evaluated(topk=[28], valid_metric="NDCG@28")


@pytest.mark.parametrize("mode", ["uni5", "labeled"])
def test_it_belongs_to_rankings_of_all_items(make_config, mode):
    labels = {"metrics": ["AUC"], "valid_metric": "AUC"} if mode == "labeled" else {}
    config = make_config("SASRec", exclude_history=True, eval_args={"mode": mode}, **labels)
    with pytest.raises(InputError, match=f"exclude_history is True, but eval_args mode is {mode}"):
        data_preparation(config, create_dataset(config))


def test_histories_that_files_bring_are_taken_out_too(make_config, tmp_path):
    folder = tmp_path / "data" / "toy"
    folder.mkdir(parents=True)
    header = "user_id:token\titem_id_list:token_seq\ttimestamp_list:float_seq\titem_id:token\ttimestamp:float"
    lines = [f"u{n}\ti{n} i{n + 1}\t1600000000 1600000001\ti{(n + 2) % 12}\t1600000002" for n in range(10)]
    for part in ("train", "valid", "test"):
        (folder / f"toy.{part}.inter").write_text("\n".join([header, *lines]) + "\n")
    config = make_config("SASRec", data_path=str(tmp_path / "data"), benchmark_filename=["train", "valid", "test"],
                         load_col={"inter": header.replace(":token_seq", "").replace(":float_seq", "")
                                   .replace(":token", "").replace(":float", "").split("\t")}, **SMALL)  # fmt: skip
    train, _, test = data_preparation(config, create_dataset(config))
    trainer = get_trainer(config)(config, config.model_class(config, train._dataset))
    first, counts = trainer._full_sort_batch_eval, []

    def noting(batch):
        found = first(batch)
        counts.extend((found[1] == -torch.inf).sum(1).tolist())
        return found

    trainer._full_sort_batch_eval = noting
    trainer.evaluate(test, load_best_model=False)
    assert counts == [3] * 10
