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
    """Path of a property file of this package, e.g. for RecBole's own `Config(config_file_list=[...])`.

    Args:
        name: model or data set, e.g. `"MEANTIME"`.
        kind: `"model"`, `"dataset"` or `"setting"`.

    Raises:
        InputError: there is no such file; the message lists the existing files.
    """
    path = properties_dir() / kind / f"{name}.yaml"
    if not path.is_file():
        names = sorted(file.stem for file in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise InputError(f"there is no property file for {kind} '{name}'; choose from: {', '.join(names) or 'none'}.")
    return str(path)


def preset_or_file(name: str) -> str:
    """The path of a preset such as `BST-clicks`; other names are returned unchanged, as paths.

    Raises:
        InputError: there is no such file or preset, but a preset has a similar name.
    """
    preset = properties_dir() / "setting" / f"{name.removesuffix('.yaml')}.yaml"
    if set(name) & {"/", os.sep, "\0"} or os.path.exists(name):
        return name
    if preset.is_file():
        return str(preset)
    if near := nearest(preset.stem, (path.stem for path in preset.parent.glob("*.yaml"))):
        raise InputError(f"there is no file or preset {name}; did you mean '{near}'?")
    return name


def check_dataset_name(name: str) -> str:
    """The name; raises `InputError` if it is empty or a path."""
    if name in {"", ".", ".."} or set(name) & {"/", os.sep, "\0"}:
        raise InputError(
            f"dataset is {name!r}; it should be the stem of the .inter file, with data_path for its folder."
        )
    return name


def dataset_dir(data_path: str, dataset: str, from_user: bool, parts: Sequence[str] | None = None) -> str:
    """Resolve the folder that holds `<dataset>.inter`, as an absolute path.

    `data_path` may be the folder of the data set, the folder above it, or one of the files. The ml-100k that comes with
    RecBole is used unless the user's `data_path` has its own.

    Args:
        data_path: the value of the key; relative paths count from the working directory.
        dataset: name of the data set, which is the stem of its files.
        from_user: whether the user set `data_path`.
        parts: RecBole's `benchmark_filename`, if the data set is split into files `<dataset>.<part>.inter`.

    Raises:
        InputError: the data set was not found, and RecBole cannot download it; the message names the folders that were
            searched.
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
    for folder in [*folders, bundled] if from_user else [bundled, *folders]:
        if all((folder / file).is_file() for file in files):
            return str(folder)
    url = read_yaml(str(Path(recbole.__file__).parent / "properties" / "dataset" / "url.yaml")).get(dataset)
    if url and not parts and not folders[0].exists():  # RecBole offers to download it into this folder
        return str(folders[0])
    searched = " or ".join(map(str, folders))
    split = sorted(path.name for folder in folders for path in folder.glob(f"{escape(dataset)}.*.inter"))
    if split and not parts:
        raise InputError(
            f"data set '{dataset}' was not found: there is no {files[0]} in {searched}, but {quoted(split)}; for a "
            f"data set of several files, set benchmark_filename, e.g. [train, valid, test]."
        )
    source = f"unpack {url} into {folders[0]}" if url else "set data_path to its folder"
    raise InputError(f"data set '{dataset}' was not found: there is no {', '.join(files)} in {searched}; {source}.")
