"""Paths of property files, presets and data sets."""

import os
from collections.abc import Sequence
from glob import escape
from pathlib import Path

import recbole

from recbole_ext.errors import InputError
from recbole_ext.utils.literals import read_yaml
from recbole_ext.utils.paths import ATOMIC, absolute
from recbole_ext.utils.wording import nearest, quoted

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
        kind: `"model"`, `"dataset"` or `"setting"`.

    Raises:
        InputError: there is no such file; the message lists those there are.
    """
    path = properties_dir() / kind / f"{name}.yaml"
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise InputError(f"there is no property file for {kind} '{name}'; there are: {', '.join(known) or 'none'}.")
    return str(path)


def setting_or_file(name: str) -> str:
    """The path of a setting of ours, such as `BST-clicks`; any other name is a path already.

    Raises:
        InputError: there is no such file, and a setting that is called nearly so.
    """
    own = properties_dir() / "setting" / f"{name.removesuffix('.yaml')}.yaml"
    if set(name) & {"/", os.sep, "\0"} or os.path.exists(name):
        return name
    if own.is_file():
        return str(own)
    if near := nearest(own.stem, (path.stem for path in own.parent.glob("*.yaml"))):
        raise InputError(f"there is no file {name}, nor a setting of that name; did you mean '{near}'?")
    return name


def check_dataset_name(name: str) -> str:
    """The name, if files can be called that; `InputError` if it is a path or empty."""
    if name in {"", ".", ".."} or set(name) & {"/", os.sep, "\0"}:
        raise InputError(
            f"dataset is {name!r}; it should be the stem of the .inter file, with data_path for its folder."
        )
    return name


def dataset_dir(data_path: str, dataset: str, given: bool, parts: Sequence[str] | None = None) -> str:
    """Resolve the folder that holds `<dataset>.inter`, as an absolute path.

    `data_path` may name the folder above the data set's, the data set's own folder, or one of its files. ml-100k comes
    with RecBole and is used from there unless the user's own `data_path` holds one.

    Args:
        data_path: the value of the key; relative paths count from the working directory.
        dataset: name of the data set, which is the stem of its files.
        given: whether the user set `data_path`.
        parts: the data set is split into files `<dataset>.<part>.inter`, RecBole's `benchmark_filename`.

    Raises:
        InputError: none of these holds the data set, and RecBole cannot download it there; the message says where it
            was looked for.
    """
    files = [f"{dataset}.{part}.inter" for part in parts] if parts else [f"{dataset}.inter"]
    base = Path(absolute(data_path, "data_path"))
    absolute(dataset, "dataset")
    if base.is_file():
        if not (base.name.startswith(f"{dataset}.") and base.suffix in ATOMIC):
            raise InputError(f"data_path is the file {base}; it should be a folder, or an atomic file of '{dataset}'.")
        base = base.parent
    bundled = Path(recbole.__file__).parent / "dataset_example" / dataset
    folders = [base / dataset, base]
    for folder in [*folders, bundled] if given else [bundled, *folders]:
        if all((folder / file).is_file() for file in files):
            return str(folder)
    url = read_yaml(str(Path(recbole.__file__).parent / "properties" / "dataset" / "url.yaml")).get(dataset)
    if url and not parts and not folders[0].exists():  # RecBole asks, and downloads it there
        return str(folders[0])
    looked = " or ".join(map(str, folders))
    split = sorted(path.name for folder in folders for path in folder.glob(f"{escape(dataset)}.*.inter"))
    if split and not parts:
        raise InputError(
            f"data set '{dataset}' was not found: there is no {files[0]} in {looked}, but {quoted(split)}; where files "
            f"are split already, set benchmark_filename, e.g. [train, valid, test]."
        )
    source = f"unpack {url} into {folders[0]}" if url else "set data_path to the folder that holds it"
    raise InputError(f"data set '{dataset}' was not found: there is no {', '.join(files)} in {looked}; {source}.")
