"""Files to write that are files to read, data, or each other: refused before anything is read, for every command."""

import os
from pathlib import Path

import pytest

from recbole_ext import InputError, run_recbole
from recbole_ext.cli.entry import main
from recbole_ext.utils.paths import check_outputs

RECOMMEND = ["recommend", "--checkpoint=a.pth", "--histories=in.csv"]
EXPLAIN = ["explain", "--checkpoint=a.pth", "--histories=in.csv", "--user=u1"]
CASES = [
    ([*RECOMMEND, "--out=in.csv"], "--out is 'in.csv', which would overwrite the file of --histories"),
    ([*RECOMMEND, "--items=items.csv", "--out=items.csv"], "would overwrite the file of --items"),
    ([*RECOMMEND, "--users=items.csv", "--out=items.csv"], "would overwrite the file of --users"),
    (["recommend", "--checkpoint=a.csv", "--all_users", "--out=a.csv"], "would overwrite the file of --checkpoint"),
    ([*EXPLAIN, "--out=in.csv"], "--out is 'in.csv', which would overwrite the file of --histories"),
    (["explain", "--checkpoint=a.json", "--histories=in.csv", "--user=u", "--json=a.json"], "--checkpoint"),
    (["compare", "a.json", "b.json", "--json=a.json"], "would overwrite the file of run a.json"),
    (["export", "--checkpoint=a.pt2", "--out=a.pt2"], "--out is 'a.pt2', which would overwrite the file of --check"),
    (["--model=Pop", "--config_files=keys.yaml", "--json=keys.yaml"], "of --config_files (keys.yaml)"),
    (["--resume=a.pth", "--json=a.pth"], "--json is 'a.pth', which would overwrite the file of --resume"),
    (["--model=Pop", "--json=new.csv", "--per_user=new.csv"], "--per_user is 'new.csv', which is the same file as"),
    (["--model=Pop", "--config_files=in.csv", "--per_user=in.csv"], "--per_user is 'in.csv', which would overwrite"),
    (["--model=Pop", "--json=toy.inter"], "--json is 'toy.inter', but .inter files hold data of RecBole"),
    (["tune", "--model=Pop", "--space=keys.yaml", "--json=keys.yaml"], "would overwrite the file of --space"),
    (["tune", "--model=Pop", "--config_files=keys.yaml", "--json=keys.yaml"], "of --config_files (keys.yaml)"),
    (["tune", "--resume=folder", "--json=folder/trials.csv"], "of the search (trials.csv)"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("in.csv", "items.csv", "a.pth", "a.csv", "a.json", "a.pt2", "keys.yaml", "toy.inter"):
        (tmp_path / name).write_text("before")


@pytest.mark.parametrize(("words", "sentence"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_every_command_refuses_to_write_over_what_it_reads(words, sentence, capsys, tmp_path):
    before = sorted(os.listdir())
    assert main(words) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert sorted(os.listdir()) == before
    assert all(Path(name).read_text() == "before" for name in before if Path(name).is_file())


SPELLINGS = {
    "from the root": os.path.abspath,
    "with a detour": lambda name: f"folder/../{name}",
    "a symbolic link": lambda name: os.symlink(name, "link.csv") or "link.csv",
    "a hard link": lambda name: os.link(name, "hard.csv") or "hard.csv",
    "a link to the folder": lambda name: os.symlink(".", "here") or f"here/{name}",
    "a path object": Path,
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("there", [True, False], ids=["a file", "no file yet"])
def test_a_file_is_known_under_every_name(spelling, there):
    if there:
        with pytest.raises(InputError, match="--out is .*, which would overwrite the file of --histories"):
            check_outputs({"--out": SPELLINGS[spelling]("in.csv")}, {"--histories": "in.csv"})
    elif "link" not in spelling or "folder" in spelling:
        with pytest.raises(InputError, match="--out is .*, which is the same file as that of --report"):
            check_outputs({"--report": "new.csv", "--out": SPELLINGS[spelling]("new.csv")}, {})


def test_other_files_and_no_files_are_let_through():
    check_outputs({"--json": "-", "--out": "new.csv", "--report": None, "--x": True}, {"--y": "in.csv", "--z": None})


def test_python_refuses_it_too():
    with pytest.raises(InputError, match="per_user is 'in.csv', which would overwrite the file of config file in.csv"):
        run_recbole("Pop", "toy", ["in.csv"], {}, per_user="in.csv", argv=[])
