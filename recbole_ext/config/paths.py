"""Where the property files of this package and the user's data sets lie."""

import os
from pathlib import Path

import recbole

from recbole_ext.errors import InputError

PACKAGE = Path(__file__).resolve().parents[1]


def properties_dir() -> Path:
    """The folder of property files: inside the package in a wheel, beside it in a checkout."""
    for folder in (PACKAGE / "properties", PACKAGE.parent / "properties"):
        if folder.is_dir():
            return folder
    raise InputError(f"the property files of recbole_ext are missing beside {PACKAGE}; install the package again.")


def properties_file(name: str, kind: str = "model") -> str:
    """Path of a property file of ours, for RecBole's own `Config(config_file_list=[...])`.

    Args:
        name: model or data set, e.g. `"MEANTIME"`.
        kind: `"model"`, `"dataset"` or `"search"`.

    Raises:
        InputError: there is no such file; the message lists those there are.
    """
    path = properties_dir() / kind / f"{name}.yaml"
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise InputError(f"there is no property file for {kind} '{name}'; there are: {', '.join(known) or 'none'}.")
    return str(path)


def dataset_dir(data_path: str, dataset: str, given: bool) -> str:
    """Resolve the folder that holds `<dataset>.inter`, as an absolute path.

    `data_path` may name the folder above the data set's, the data set's own folder, or one of its files. ml-100k comes
    with RecBole and is used from there unless the user's own `data_path` holds one.

    Args:
        data_path: the value of the key; relative paths count from the working directory.
        dataset: name of the data set, which is the stem of its files.
        given: whether the user set `data_path`.

    Raises:
        InputError: none of these holds the data set and RecBole does not know where to download it.
    """
    base = Path(os.path.abspath(os.path.expanduser(data_path)))
    candidates = [base / dataset, base] if base.name != f"{dataset}.inter" else [base.parent]
    bundled = Path(recbole.__file__).parent / "dataset_example" / dataset
    if not given:
        candidates.insert(0, bundled)
    else:
        candidates.append(bundled)
    for folder in candidates:
        if any(folder.glob(f"{_escape(dataset)}.inter")) or any(folder.glob(f"{_escape(dataset)}.*.inter")):
            return str(folder)
    if dataset in _downloadable():
        return str(base / dataset)
    looked = ", ".join(dict.fromkeys(str(folder) for folder in candidates if folder != bundled))
    raise InputError(
        f"data set '{dataset}' was not found: no file {dataset}.inter in {looked}; "
        f"set data_path to the folder that holds it."
    )


def _escape(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def _downloadable() -> dict:
    from recbole_ext.config.values import read_yaml

    return read_yaml(str(Path(recbole.__file__).parent / "properties" / "dataset" / "url.yaml"))
