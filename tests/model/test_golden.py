"""MEANTIME computes what its authors' implementation computes, and the comparison notices when it does not."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.golden.__main__ import main
from tests.golden.compare import compare, distance, first_second, gradient_distance, load
from tests.golden.reference import Reference, read
from tests.oracles.bare import DAY, bare_meantime, plain_like, randomise, sequences

FILES = sorted(str(path) for path in (Path(__file__).parents[1] / "golden").glob("meantime_*.npz"))
SHORT = [Path(file).stem.removeprefix("meantime_") for file in FILES]
QUANTITIES = ("hidden", "scores", "loss", "attention", "gradients")
LETTERS = {"position": "p", "day": "d", "constant": "c", "sin": "s", "exp": "e", "log": "l"}


@pytest.fixture(scope="module", params=FILES, ids=SHORT)
def errors_of_file(request) -> tuple[dict[str, float], Reference]:
    reference = read(request.param)
    return compare(reference), reference


def test_there_are_five_files():
    assert len(FILES) == 5


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_our_model_agrees_with_the_authors(errors_of_file, quantity):
    errors, reference = errors_of_file
    assert errors[quantity] <= reference.tolerance


def test_the_tolerance_follows_from_the_kernels():
    found = {name: read(file).tolerance for name, file in zip(SHORT, FILES, strict=True)}
    assert found == {"c_e": 1e-5, "l_only": 1e-5, "p_only": 1e-9, "pd_sl": 1e-5, "pdc_sel": 1e-5}


@pytest.mark.parametrize("file", FILES, ids=SHORT)
def test_the_plain_oracle_agrees_with_the_authors(file):
    reference = read(file)
    arrays, tolerance = reference.arrays, 1e-7 if "sin" in reference.relative else 1e-9
    days = (
        len(arrays["param/" + reference.parameters["kernel_embeddings.day.weight"]])
        if "day" in reference.absolute
        else 1
    )
    model = bare_meantime(
        reference.sizes["n_items"], days, absolute_kernels=reference.absolute, relative_kernels=reference.relative,
        hidden_size=reference.sizes["hidden_size"], inner_size=4 * reference.sizes["hidden_size"], pad_class=True,
        n_layers=reference.sizes["n_layers"], MAX_ITEM_LIST_LENGTH=reference.sizes["max_len"],
    ).double()  # fmt: skip
    plain = plain_like(model)
    load(plain, reference)
    if "day" in reference.absolute:
        plain.first_second = first_second(reference)
    tokens, time, labels = arrays["in/tokens"], arrays["in/timestamps"].double(), arrays["in/labels"]
    real = tokens != 0  # padded on the left, as the file is
    states = plain.encode(tokens, time, real)
    loss = plain.loss(tokens, time, real, labels, labels != 0)
    loss.backward()
    assert distance(states[real], arrays["out/hidden"][real]) < tolerance
    assert distance(plain.scores(states[:, -1]), arrays["out/scores"]) < tolerance
    assert distance(loss.reshape(1), arrays["out/loss"]) < tolerance
    assert gradient_distance(plain, reference) < tolerance


# ---------------------------------------------------------------- the comparison is sensitive


def without_effect(reference: Reference) -> set[str]:
    """Parameters that add the same to all logits of a row, which the softmax takes away again."""
    names = set()
    for name in reference.parameters:
        if name.endswith("attention.key.bias") or ("position_key" in name and name.endswith("bias")):
            names.add(name)
        for index, kernel in enumerate(reference.absolute):
            if kernel == "constant" and f"position_key.{index}." in name:
                names.add(name)
    return names


@pytest.mark.parametrize("file", FILES, ids=SHORT)
def test_disturbing_any_parameter_shows(file):
    reference = read(file)
    for ours, theirs in reference.parameters.items():
        name = f"param/{theirs}"
        noise = torch.randn(reference.arrays[name].shape, generator=torch.Generator().manual_seed(1)).double() * 1e-2
        changed = Reference(
            {**reference.arrays, name: reference.arrays[name] + noise},
            reference.absolute, reference.relative, reference.sizes,
        )  # fmt: skip
        worst = max(compare(changed).values())
        if ours in without_effect(reference):
            assert worst <= reference.tolerance, f"{ours} should change nothing"
        else:
            assert worst > 3 * reference.tolerance, f"{ours} changed, the worst error is {worst}"


@pytest.mark.parametrize("name", ["in/timestamps", "in/tokens", "in/labels"])
def test_disturbing_an_input_shows(name):
    reference = read(FILES[SHORT.index("pd_sl")])
    values = reference.arrays[name].clone()
    row, slot = (reference.arrays["in/labels"] != 0).nonzero()[0]
    values[row, slot] = values[row, slot] % 7 + 1 if name != "in/timestamps" else values[row, slot] + 1
    changed = Reference(
        {**reference.arrays, name: values}, reference.absolute, reference.relative, reference.sizes
    )  # fmt: skip
    assert max(compare(changed).values()) > 3 * reference.tolerance


def test_a_gradient_that_is_not_a_number_shows():
    reference = read(FILES[SHORT.index("p_only")])
    reference.arrays["grad/head.bias"][0, 3] = float("nan")
    assert not compare(reference)["gradients"] <= reference.tolerance


# ---------------------------------------------------------------- python -m tests.golden


def save_with(tmp_path: Path, file: str, leave_out: str = "", **arrays) -> str:
    """A copy of a reference file with some arrays replaced or one left out."""
    stored = {name: values for name, values in np.load(file).items() if name != leave_out}
    path = str(tmp_path / "changed.npz")
    np.savez(path, **{**stored, **arrays})
    return path


def test_the_command_prints_every_quantity_and_exits_0(capsys):
    assert main(FILES) == 0
    printed = capsys.readouterr().out
    assert all(printed.count(f"  {quantity} ") == len(FILES) for quantity in QUANTITIES)
    assert "PAST" not in printed


def test_the_command_exits_1_when_a_weight_is_disturbed(tmp_path, capsys):
    weights = np.load(FILES[0])["param/head.out.0.weight"].copy()
    weights[0, 0] += 1e-3
    assert main([FILES[1], save_with(tmp_path, FILES[0], **{"param/head.out.0.weight": weights})]) == 1
    assert "PAST THE TOLERANCE" in capsys.readouterr().out


def test_the_command_exits_2_without_files(capsys):
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


def bad_file(tmp_path: Path, kind: str) -> str:
    file = FILES[SHORT.index("pd_sl")]
    tokens, config = np.load(file)["in/tokens"], json.loads(str(np.load(file)["config"]))
    if kind == "missing":
        return str(tmp_path / "nothing.npz")
    if kind == "folder":
        return str(tmp_path)
    if kind in ("text", "empty", "pickle", "one array"):
        path = tmp_path / "bad.npz"
        path.write_bytes(b"abc" * 20 if kind == "text" else b"")
        if kind == "pickle":
            np.savez(path, config=np.array([{}], dtype=object))
        if kind == "one array":
            with path.open("wb") as handle:
                np.save(handle, tokens)
        return str(path)
    if kind == "kernels":
        return save_with(tmp_path, file, config=json.dumps({**config, "relative_kernels": "s-x"}))
    if kind == "size":
        return save_with(tmp_path, file, config=json.dumps({**config, "n_layers": "two"}))
    if kind == "indivisible":
        return save_with(tmp_path, file, "out/attn_0", config=json.dumps({**config, "relative_kernels": "s"}))
    if kind == "right padding":
        return save_with(tmp_path, file, **{"in/tokens": tokens[:, ::-1]})
    if kind == "unknown item":
        return save_with(tmp_path, file, **{"in/tokens": np.where(tokens == 0, 0, 99)})
    if kind == "shape":
        return save_with(tmp_path, file, **{"out/scores": np.zeros((1, 41))})
    if kind == "days":
        return save_with(tmp_path, file, **{"in/days": np.load(file)["in/days"] * 2})
    if kind == "no label":
        return save_with(tmp_path, file, **{"in/labels": np.zeros_like(tokens)})
    if kind == "weight shape":
        name = "head.out.0.bias"
        return save_with(tmp_path, file, **{f"param/{name}": np.zeros(3), f"grad/{name}": np.zeros(3)})
    return save_with(tmp_path, file, leave_out=kind)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("missing", "cannot be read"), ("folder", "cannot be read"), ("text", "npz"), ("empty", "npz"),
        ("pickle", "npz"), ("one array", "npz"), ("config", "'config'"),
        ("kernels", "relative_kernels"), ("size", "n_layers"), ("indivisible", "hidden_size"),
        ("in/days", "'in/days'"), ("out/loss", "'out/loss'"),
        ("param/head.bias", "'param/head.bias'"), ("grad/head.out.2.weight", "'grad/head.out.2.weight'"),
        ("param/body.transformer_blocks.1.attention.rel_position_bias", "rel_position_bias"),
        ("right padding", "left"), ("unknown item", "in/tokens"), ("shape", "out/scores"), ("days", "in/days"),
        ("no label", "in/labels"), ("weight shape", "head.out.0.bias"),
    ],
)  # fmt: skip
def test_a_bad_file_gets_one_sentence_and_exit_2(tmp_path, capsys, kind, word):
    path = bad_file(tmp_path, kind)
    assert main([path]) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert said.startswith(path)
    assert word in said


# ---------------------------------------------------------------- files of other mixtures


def write_reference(path: str, absolute: list[str], relative: list[str], layers: int, hidden: int = 12) -> str:
    """A file as the authors' implementation would give it, from the plain oracle."""
    lengths, items, slots = [7, 3, 1, 6], 25, 9
    model = bare_meantime(
        items, 25, absolute_kernels=absolute, relative_kernels=relative, hidden_size=hidden, inner_size=4 * hidden,
        n_layers=layers, MAX_ITEM_LIST_LENGTH=slots, pad_class=True,
    ).double()  # fmt: skip
    randomise(model, seed=layers)
    plain = plain_like(model)
    tokens, times, length = (values.numpy() for values in sequences(lengths, items))
    right = {"tokens": tokens, "timestamps": times.astype(np.int64)}
    left = {name: np.zeros((len(lengths), slots), dtype=np.int64) for name in ("tokens", "timestamps", "labels")}
    for row, count in enumerate(length):
        for name, values in right.items():
            left[name][row, slots - count :] = values[row, :count]
        left["labels"][row, -1] = left["tokens"][row, -1]
        left["tokens"][row, -1] = items + 1
    inputs = {name: torch.from_numpy(values) for name, values in left.items()}
    real = inputs["tokens"] != 0
    states = plain.encode(inputs["tokens"], inputs["timestamps"], real)
    loss = plain.loss(inputs["tokens"], inputs["timestamps"], real, inputs["labels"], inputs["labels"] != 0)
    loss.backward()
    letters = {key: "-".join(LETTERS[name] for name in names) for key, names in (("a", absolute), ("r", relative))}
    config = {
        "absolute_kernels": letters["a"], "relative_kernels": letters["r"], "hidden_size": hidden, "max_len": slots,
        "n_items": items, "n_days": 25, "n_layers": layers, "span_seconds": int(20 * DAY),
    }  # fmt: skip
    arrays = {f"in/{name}": values for name, values in left.items()}
    arrays["in/days"] = left["timestamps"] // int(DAY)
    arrays |= {"out/hidden": states, "out/scores": plain.scores(states[:, -1]), "out/loss": loss.reshape(1)}
    reference = Reference({}, absolute, relative, {"n_layers": layers})
    for ours, theirs in reference.parameters.items():
        parameter = plain.get_parameter(ours)
        arrays[f"param/{theirs}"] = parameter
        arrays[f"grad/{theirs}"] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    plain_arrays = {name: v.detach().numpy() if isinstance(v, torch.Tensor) else v for name, v in arrays.items()}
    np.savez(path, config=json.dumps(config), **plain_arrays)
    return path


@pytest.mark.parametrize(
    ("absolute", "relative", "layers"),
    [
        (["day"], [], 1), (["position", "constant"], [], 2), (["constant", "day", "position"], [], 1),
        ([], ["sin", "exp"], 2), ([], ["log", "exp", "sin"], 1), (["day"], ["log"], 3),
        (["position"], ["sin"], 3), ([], ["sin"], 1),
    ],
)  # fmt: skip
def test_the_command_takes_files_of_any_mixture_and_order(tmp_path, capsys, absolute, relative, layers):
    path = write_reference(str(tmp_path / "more.npz"), absolute, relative, layers)
    assert main([path]) == 0, capsys.readouterr()
    assert "attention" not in capsys.readouterr().out  # these files hold none
