"""Where data sets are found and where files are written."""

import os
import shutil
from pathlib import Path

import pytest
import recbole

from recbole_ext import Config, InputError, properties_file
from recbole_ext.config.paths import dataset_dir
from recbole_ext.utils.paths import writable_dir, writable_file

BUNDLED = Path(recbole.__file__).parent / "dataset_example" / "ml-100k"


@pytest.fixture
def home(write_events, random_events, tmp_path) -> Path:
    write_events(random_events())
    return tmp_path


def found(**keys) -> str:
    return Config("MEANTIME", keys.pop("dataset", "toy"), None, keys, argv=[])["data_path"]


@pytest.mark.parametrize(
    "spelling", ["data", "data/", "./data", "data/toy", "data/toy/", "data/toy/toy.inter", "data/../data"]
)
def test_a_data_path_may_be_the_folder_above_the_data_sets_own_or_its_file(home, spelling):
    expected = str(home / "data" / "toy")
    assert found(data_path=spelling) == expected
    assert found(data_path=str(home / spelling)) == expected
    assert found(data_path=home / spelling) == expected


def test_a_relative_data_path_counts_from_the_working_directory_and_stays_what_it_was(home, monkeypatch):
    (home / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(home / "deep" / "er")
    config = Config("MEANTIME", "toy", None, {"data_path": "../../data", "checkpoint_dir": "kept"}, argv=[])
    monkeypatch.chdir("/")
    assert config["data_path"] == str(home / "data" / "toy")
    assert config["checkpoint_dir"] == str(home / "deep" / "er" / "kept")


def test_a_tilde_is_the_users_home(home, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir("/")
    assert found(data_path="~/data") == str(home / "data" / "toy")
    assert Config("MEANTIME", "ml-100k", None, {"checkpoint_dir": "~/x"}, argv=[])["checkpoint_dir"] == str(home / "x")


def test_without_a_data_path_the_folder_dataset_is_looked_in(home, monkeypatch):
    os.rename(home / "data", home / "dataset")
    assert found() == str(home / "dataset" / "toy")


def test_ml_100k_comes_with_recbole_unless_the_user_has_one(home):
    assert Path(found(dataset="ml-100k")).samefile(BUNDLED)
    assert Path(found(dataset="ml-100k", data_path="data")).samefile(BUNDLED)
    shutil.copytree(home / "data" / "toy", home / "data" / "ml-100k")
    os.rename(home / "data" / "ml-100k" / "toy.inter", home / "data" / "ml-100k" / "ml-100k.inter")
    assert found(dataset="ml-100k", data_path="data") == str(home / "data" / "ml-100k")
    assert Path(found(dataset="ml-100k")).samefile(BUNDLED)


def test_a_missing_data_set_is_refused_with_the_places_looked_at(home):
    with pytest.raises(InputError) as caught:
        found(dataset="tpy", data_path="data")
    sentence = str(caught.value)
    assert "data set 'tpy' was not found: there is no tpy.inter" in sentence
    assert f"{home / 'data' / 'tpy'} or {home / 'data'}" in sentence
    assert "set data_path" in sentence


def test_a_data_set_that_is_split_already_is_named_with_its_key(home):
    (home / "data" / "toy" / "toy.inter").rename(home / "data" / "toy" / "toy.train.inter")
    with pytest.raises(InputError, match=r"there is no toy\.inter in .*, but 'toy\.train\.inter'.*benchmark_filename"):
        found(data_path="data")


def test_a_data_set_that_recbole_can_download_has_a_place_unless_something_is_in_its_way(home):
    place = home / "data" / "ml-1m"
    assert found(dataset="ml-1m", data_path="data") == str(place)
    assert not place.exists()
    place.mkdir()
    with pytest.raises(InputError, match=r"data set 'ml-1m' was not found.*unpack https://\S+zip into .*ml-1m"):
        found(dataset="ml-1m", data_path="data")


def test_a_folder_without_the_file_or_a_file_in_its_place_is_no_data_set(home):
    (home / "data" / "empty").mkdir()
    (home / "data" / "file").write_text("x")
    (home / "data" / "odd" / "odd.inter").mkdir(parents=True)
    for name in ("empty", "file", "odd"):
        with pytest.raises(InputError, match="was not found"):
            found(dataset=name, data_path="data")
    with pytest.raises(InputError, match="data_path is the file .*data/file; it should be a folder, or an atomic file"):
        found(data_path="data/file")
    (home / "data" / "toy" / "toy.csv").touch()
    with pytest.raises(InputError, match="data_path is the file .*toy.csv; it should be a folder, or an atomic file"):
        found(data_path="data/toy/toy.csv")


def test_a_split_data_set_needs_all_its_files(home):
    folder = home / "data" / "toy"
    for part in ("train", "test"):
        shutil.copy(folder / "toy.inter", folder / f"toy.{part}.inter")
    with pytest.raises(InputError, match="no toy.train.inter, toy.valid.inter, toy.test.inter in"):
        found(data_path="data", benchmark_filename=["train", "valid", "test"])
    (folder / "toy.inter").rename(folder / "toy.valid.inter")
    assert found(data_path="data", benchmark_filename=["train", "valid", "test"]) == str(folder)
    with pytest.raises(InputError, match="no toy.inter"):
        found(data_path="data")


def test_names_with_letters_that_patterns_use_are_plain_names(home):
    for name in ("a*", "b?", "[c]", "d e"):
        (home / "data" / name).mkdir()
        (home / "data" / name / f"{name}.inter").touch()
        assert dataset_dir("data", name, from_user=True) == str(home / "data" / name)
    with pytest.raises(InputError):
        dataset_dir("data", "*", from_user=True)


def test_property_files_are_found_by_name():
    assert Path(properties_file("MEANTIME")).is_file()
    with pytest.raises(InputError, match="no property file for model 'NONE'; .*: BST, LightSANs, MEANTIME, TiSASRec"):
        properties_file("NONE")
    with pytest.raises(InputError, match="choose from: none"):
        properties_file("MEANTIME", kind="nothing")


@pytest.mark.parametrize("key", ["data_path", "dataset", "checkpoint_dir"])
def test_a_path_that_the_locale_cannot_read_is_refused_with_the_way_out(key, home):
    keys = {"data_path": "data", "dataset": "toy", key: b"d\xc3\xa4t\xc3\xa4".decode("ascii", "surrogateescape")}
    with pytest.raises(InputError, match=rf"{key}: '.*' cannot be read in this locale; set PYTHONUTF8=1"):
        found(**keys)


def test_a_path_with_a_nul_is_none():
    with pytest.raises(InputError, match="--json: '.*' has a NUL character; no file can be called that"):
        writable_dir("a\0b", "--json")


def test_a_folder_to_write_to_is_made_or_refused(tmp_path, monkeypatch):
    assert writable_dir("new/deep", "checkpoints") == str(tmp_path / "new" / "deep")
    assert os.listdir(tmp_path / "new" / "deep") == []
    (tmp_path / "file").touch()
    for path in ("file", "file/below"):
        with pytest.raises(InputError, match=r"checkpoints cannot be written to .*file"):
            writable_dir(path, "checkpoints")

    def refuse(*args, **keys):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(InputError, match="cannot be written to .*: Permission denied"):
        writable_dir("new", "checkpoints")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("x" * 250 + ".csv", "File name too long"), ("data", "which is a folder"), ("a\0.csv", "NUL")],
)
def test_a_name_that_no_file_can_have_is_told_before_the_work(home, name, sentence):
    with pytest.raises(InputError, match=sentence):
        writable_file(str(home / name), "--out")
    assert writable_file("new/x.csv", "--out") == str(home / "new" / "x.csv")


def test_an_output_never_replaces_a_device_or_a_link(tmp_path) -> None:
    os.mkfifo(pipe := str(tmp_path / "pipe.json"))
    with pytest.raises(InputError, match=r"^--json cannot be written to .*pipe\.json, which is a device or a pipe"):
        writable_file(pipe, "--json")
    (tmp_path / "a.json").touch()
    (link := tmp_path / "latest.json").symlink_to("a.json")
    assert writable_file(str(link), "--json") == str((tmp_path / "a.json").resolve())
