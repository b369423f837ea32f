"""Every value of a checkpoint, edited: it is refused with one sentence, or the result is that of the file as it was."""

import copy
import math
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
import torch

from recbole_ext import InputError, Recommender, get_trainer, load_data_and_model, run_recbole
from recbole_ext.checkpoint import file as checkpoint
from recbole_ext.checkpoint import restore, training_run
from recbole_ext.checkpoint.content import check_content
from recbole_ext.serving.training_users import training_user_requests

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_waiting")]

EVENTS = pd.DataFrame({
    "user_id": ["a", "a", "b"], "item_id": ["i1", "i2", "i3"], "timestamp": [1.6e9, 1.6e9 + 900, 1.6e9 + 1000],
    "tab": ["t1", "t2", "t1"], "price": [1.0, 2.0, 3.0],
})  # fmt: skip
KEYS = {
    "epochs": 1, "train_batch_size": 64, "show_progress": False, "use_gpu": False, "MAX_ITEM_LIST_LENGTH": 4,
    "topk": [5], "valid_metric": "NDCG@5", "state": "critical",
}  # fmt: skip
MODELS = {
    "MEANTIME": {"hidden_size": 8, "inner_size": 8, "n_layers": 1},
    "BST": {
        "embedding_size": 4, "gap_embedding_size": 4, "inner_size": 4, "n_heads": 2, "mlp_hidden_size": [4],
        "load_col": None, "context_features": ["tab", "price"],
    },
}  # fmt: skip
Way = tuple[Any, ...]


@pytest.fixture(params=MODELS)
def trained(request, write_events, write_lines, random_events):
    """The state of a checkpoint of each model, and its path."""
    events = [(*event, f"t{place % 3}", place % 7) for place, event in enumerate(random_events(users=12))]
    columns = ("user_id:token", "item_id:token", "timestamp:float", "tab:token", "price:float")
    path = write_events(events, columns)
    write_lines("user", "user_id:token\tage:float\tlikes:token_seq", *(f"u{n}\t{n}\tg{n % 3} g1" for n in range(12)))
    write_lines("item", "item_id:token\tbrand:token", *(f"i{n}\tb{n % 4}" for n in range(20)))
    keys = {**KEYS, **MODELS[request.param], "data_path": path}
    file = run_recbole(request.param, "toy", None, keys, argv=[])["checkpoint"]
    return checkpoint.load(file), file


def leaves(value: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:
    """Every value with the way to it; a list of plain values is one, since its members are edited with it."""
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from leaves(member, (*way, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for place, member in enumerate(value):
            yield from leaves(member, (*way, place))
    else:
        yield way, value


def edits(value: Any) -> Iterator[tuple[str, Any]]:
    """What takes the place of a value, with a name."""
    yield from {"None": None, "an empty tensor": torch.zeros(0), "inf": math.inf, "a dictionary": {}}.items()
    yield "another type", 7 if isinstance(value, (str, list, tuple, torch.Tensor)) else "seven"
    if isinstance(value, (list, tuple)) and value:
        members = list(value)
        yield from {"no members": [], "one less": members[:-1], "one more": [*members, members[-1]]}.items()
        yield from {f"a member {new}": [*members[:-1], new] for new in (None, {}, math.inf)}.items()
        if len(members) > 1:
            yield "one twice", [*members[:-1], members[0]]
    if isinstance(value, torch.Tensor):
        yield "another dtype", value.long() if value.is_floating_point() else value.double()
        yield "a list", value.tolist()
        if value.dim() and len(value):
            yield from {"one less": value[:-1].clone(), "one more": torch.cat([value, value[-1:]])}.items()
        if value.is_floating_point() and value.numel():
            yield "a member inf", torch.cat([value.reshape(-1)[1:], torch.tensor([math.inf])]).reshape(value.shape)


def edited(state: Any, way: Way, new: Any) -> Any:
    if not way:
        return new
    if isinstance(state, dict):
        return {**state, way[0]: edited(state[way[0]], way[1:], new)}
    return [edited(member, way[1:], new) if place == way[0] else member for place, member in enumerate(state)]


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and not isinstance(one, torch.Tensor) and one == other


def cases(state: dict[str, Any], config: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    many: Counter[Any] = Counter()  # weights, and what the optimizer keeps of each: the first of them stand for all
    for way, value in leaves(state):
        many[way[:2] if way[0] == "optimizer" else way[0]] += 1
        skipped = many["state_dict"] > 4 and way[0] == "state_dict" or many["optimizer", "state"] > 6 and "state" in way
        for name, new in edits(value) if (way[0] == "config") == config and not skipped else ():
            if not same(value, new):
                yield f"{'.'.join(map(str, way))}: {name}", edited(state, way, new)


def in_one_sentence(function, *arguments, named: str = "") -> bool:
    """Whether it is refused, with that file `named`; anything but `InputError` is a fault."""
    try:
        function(*arguments)
    except InputError as error:
        sentence = str(error)
    else:
        return False
    assert "\n" not in sentence
    assert len(sentence) < 600
    assert named in sentence
    return True


def recommended(file: str) -> Any:
    return Recommender.load(file, "cpu").recommend(EVENTS, k=5, show_progress=False).to_dict()


def measured(file: str) -> Any:
    config, model, *_, test = load_data_and_model(file, "cpu")
    return get_trainer(config)(config, model).evaluate(test, load_best_model=False)


def resumed(file: str) -> Any:
    work = shutil.copy(file, "work.pth")
    result = run_recbole(resume=work, config_dict={"epochs": 2}, argv=[])
    state = training_run.find_resume_state(work).checkpoint
    weights = {name: values.tolist() for name, values in state["state_dict"].items()}
    return result["test_result"], result["best_valid_score"], state["epoch"], weights


USES = (recommended, measured, resumed)


def test_every_value_is_refused_or_does_not_matter(trained, monkeypatch):
    state, path = trained
    config, model, *_ = load_data_and_model(path, "cpu")
    optimizer = get_trainer(config)(config, model).optimizer
    harmless = {}
    for name, changed in cases(state, config=False):
        with monkeypatch.context() as patch:  # what the model is built from
            patch.setattr(checkpoint, "load", lambda *_, changed=changed: dict(changed))
            builds = name.startswith("data.") and not in_one_sentence(check_content, changed, "a.pth")
            refused = builds and in_one_sentence(recommended, "a.pth")
        refused = (
            refused
            or in_one_sentence(check_content, changed, "a.pth")
            or in_one_sentence(restore.load_weights, copy.deepcopy(model), changed, "a.pth")
            or in_one_sentence(restore.check_optimizer, optimizer, changed, "a.pth")
        )
        if not refused:
            harmless.setdefault(name.rpartition(": ")[0], changed)
    # what remains: names, options of the optimizer that follow from the keys, and numbers that are only shown
    for place in harmless:
        assert place.startswith(("optimizer.param_groups", "curves", "other_parameter", "data.", "optimizer.state")), (
            place
        )
    right = [use(path) for use in USES]
    merged = state
    for changed in harmless.values():  # all of them at once: one run instead of dozens
        merged = merge(merged, state, changed)
    torch.save(merged, "edited.pth")
    assert [use("edited.pth") for use in USES] == right


def merge(into: Any, before: Any, after: Any) -> Any:
    """`into` with what differs between `before` and `after`."""
    if after is before:
        return into
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        return {key: merge(into[key], before[key], after[key]) for key in before}
    if isinstance(before, list) and isinstance(after, list) and before and isinstance(before[0], dict):
        return [merge(*members) for members in zip(into, before, after, strict=True)]
    return after


@pytest.mark.parametrize("trained", ["MEANTIME"], indirect=True)
def test_every_key_of_the_configuration_is_refused_or_loads(trained, monkeypatch):
    state, path = trained
    right = recommended(path)
    for name, changed in cases(state, config=True):
        if not name.endswith((": None", ": another type", ": an empty tensor", ": no members")):
            continue
        if in_one_sentence(check_content, changed, "a.pth"):
            continue
        monkeypatch.setattr(checkpoint, "load", lambda *_, changed=changed: dict(changed))
        found: list[Any] = []
        if not in_one_sentence(lambda found=found: found.append(recommended("edited.pth")), named="edited.pth"):
            assert found == [right], name


CONFIGURATION = {
    "a kind of value": ("stopping_step", -1), "a name": ("learner", "adom"),
    "a column": ("numerical_features", ["nobody"]), "a value that the model refuses": ("relative_kernels", ["x"]),
    "a unit": ("time_unit", "weeks"), "a separator": ("field_separator", ""), "a loss": ("loss_type", "BPR"),
}  # fmt: skip


@pytest.mark.parametrize("trained", ["MEANTIME"], indirect=True)
@pytest.mark.parametrize(
    "use",
    [*USES, lambda file: training_user_requests(Recommender.load(file), {})],
    ids=["recommended", "measured", "resumed", "training_user_requests"],
)
@pytest.mark.parametrize("name", CONFIGURATION)
def test_what_is_refused_in_a_configuration_names_the_checkpoint(trained, name, use):
    state, _ = trained
    key, value = CONFIGURATION[name]
    torch.save(edited(state, ("config", key), value), "edited.pth")
    assert in_one_sentence(use, "edited.pth", named="work" if use is resumed else "edited")


@pytest.mark.parametrize("trained", ["BST"], indirect=True)
def test_what_a_model_refuses_in_a_configuration_names_the_checkpoint(trained):
    state, _ = trained
    torch.save(edited(state, ("config", "LIST_SUFFIX"), "x"), "work.pth")
    assert in_one_sentence(recommended, "work.pth", named="work.pth")


def without(state: dict[str, Any], *way: Any) -> dict[str, Any]:
    *above, last = way
    part = state
    for key in above:
        part = part[key]
    return edited(state, tuple(above), {key: value for key, value in part.items() if key != last})


SENTENCES = [
    (lambda state: [1], "its content is [1]; it should be a dictionary with the keys format, model"),
    (lambda state: without(state, "epoch"), "epoch is missing; it should be a whole number, -1 or more"),
    (lambda state: without(state, "data", "tables"), "data.tables is missing"),
    (lambda state: without(state, "data", "columns", "item_id"), "data.columns.item_id is missing"),
    (lambda state: {**state, "tokens": {**state["tokens"], "item_id": ["[PAD]", "x", "x"]}},
     "tokens.item_id is ['[PAD]', 'x', 'x']; it should be a list of different texts"),
    (lambda state: edited(state, ("tokens", "user_id"), ["[PAD]", "x"]),
     "data.columns.user_id.values is 13; it should be 2, the number of its tokens"),
    (lambda state: edited(state, ("data", "columns", "timestamp", "type"), "text"),
     "data.columns.timestamp.type is 'text'; it should be one of token, float"),
    (lambda state: {**state, "time_origin": state["time_origin"] + 1}, "it should be data.first_time in seconds"),
    (lambda state: {**state, "best_valid_score": 0.99},
     "best_valid_score is 0.99; it should be the value of NDCG@5 in best_valid_result"),
    (lambda state: {**state, "class": "recbole_ext.model.Other"}, "it should be a class named"),
    (lambda state: edited(state, ("random", "torch"), state["random"]["torch"][:-1]),
     "random.torch is a tensor of uint8 in the shape (5055,); it should be the state of a generator of torch"),
]  # fmt: skip


@pytest.mark.parametrize("trained", ["MEANTIME"], indirect=True)
def test_the_sentence_names_the_place_the_value_and_what_is_right(trained):
    for change, sentence in SENTENCES:
        with pytest.raises(InputError) as caught:
            check_content(change(trained[0]), "a.pth")
        assert "a.pth is not a checkpoint of recbole_ext, or it was edited: " in str(caught.value)
        assert sentence in str(caught.value)
    state, _ = trained
    columns = {name: {**column, "unit": "m"} for name, column in state["data"]["columns"].items()}
    later = {**state, "more": {"a": [1]}, "data": {**state["data"], "columns": columns, "titles": {}}}
    check_content(later, "a.pth")  # information of a later version


@pytest.mark.parametrize("trained", ["MEANTIME"], indirect=True)
def test_what_is_wrong_with_a_change_is_not_said_of_the_checkpoint(trained):
    _, path = trained
    for call in (
        lambda: load_data_and_model(path, "cpu", config_dict={"epochs": -1}),
        lambda: run_recbole(resume=path, config_dict={"epochs": -1}, argv=[]),
    ):
        with pytest.raises(InputError, match="^key 'epochs' is -1"):
            call()
