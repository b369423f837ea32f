"""What importing the package does and does not do, each seen from a fresh process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import recbole_ext

pytestmark = pytest.mark.slow

PACKAGE = Path(recbole_ext.__file__).parent
SEARCH_AND_DRAWING = ("ray", "hyperopt", "plotly")
# A fresh process gets these only: others could stem from the package, which this process has imported.
INHERITED = ("PATH", "HOME", "LD_", "OMP_", "OPENBLAS_", "SYSTEM", "TEMP", "TMP")

# What the process as a whole looks like; prints the names of the parts that `import_all` changed.
PARTS_CHANGED = """
import copy, importlib, locale, logging, os, pkgutil, random, signal, sys, warnings
import numpy, pandas, torch, yaml

def loader(cls):
    return {name: copy.deepcopy(value) for name, value in vars(cls).items() if name.startswith("yaml_")}

def logger(name=None):
    log = logging.getLogger(name)
    return log.level, log.disabled, log.propagate, list(log.handlers), list(log.filters)

def parts():
    return {
        "NumPy's names": {name: id(value) for name, value in vars(numpy).items()},
        "NumPy's error handling": numpy.geterr(),
        "NumPy's random state": repr(numpy.random.get_state()),
        "pandas' options": [str(pandas.get_option(f"mode.{name}")) for name in ("copy_on_write", "chained_assignment")],
        "torch's random state": torch.get_rng_state().tolist(),
        "torch's settings": (
            torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark, id(torch.load),
            id(torch.save),
        ),
        "Python's random state": random.getstate(),
        "environment": dict(os.environ),
        "working directory": os.getcwd(),
        "files": sorted(os.listdir()),
        "warning filters": list(warnings.filters),
        "logging": [logger(), logger("recbole"), logging.root.manager.disable],
        "YAML loaders": [loader(cls) for cls in (yaml.SafeLoader, yaml.FullLoader, yaml.Loader, yaml.UnsafeLoader)],
        "search path": list(sys.path), "arguments": list(sys.argv), "import hooks": list(sys.meta_path),
        "streams": (id(sys.stdout), id(sys.stderr), id(sys.excepthook)), "locale": locale.setlocale(locale.LC_ALL),
        "signals": (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)),
    }

def changed_by(import_all):
    before = parts()
    import_all()
    after = parts()
    return [name for name in before if before[name] != after[name]]
"""


def python(code: str, *options: str, folder: Path | None = None) -> str:
    """Standard output of `code` in a fresh process that finds the package wherever this one found it."""
    environment = {name: value for name, value in os.environ.items() if name.startswith(INHERITED)}
    environment["PYTHONPATH"] = str(PACKAGE.parent)
    command = [sys.executable, *options, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_importing_the_package_loads_none_of_the_heavy_libraries():
    loaded = json.loads(python("import json, sys, recbole_ext; print(json.dumps(sorted(sys.modules)))"))
    assert not {*SEARCH_AND_DRAWING, "torch", "numpy", "pandas", "recbole", "thop"} & set(loaded)


def test_importing_everything_public_loads_nothing_for_searching_or_drawing():
    loaded = json.loads(python("import json, sys; from recbole_ext import *; print(json.dumps(sorted(sys.modules)))"))
    assert "torch" in loaded
    assert not set(SEARCH_AND_DRAWING) & set(loaded)


def test_importing_the_package_changes_nothing_outside_it():
    code = "print(changed_by(lambda: importlib.import_module('recbole_ext')))"
    assert python(PARTS_CHANGED + code).strip() == "[]"


def test_importing_all_its_modules_changes_nothing_that_importing_recbole_does_not():
    code = """
import recbole.config, recbole.data, recbole.model, recbole.trainer, recbole.utils
from recbole.data.dataset import SequentialDataset
from recbole.model.abstract_recommender import SequentialRecommender

def import_all():
    import recbole_ext
    modules = [module.name for module in pkgutil.walk_packages(recbole_ext.__path__, "recbole_ext.")]
    for module in modules:
        # the backend loads Ray, the kernel Triton
        if not module.endswith(("__main__", "gap_kernel")) and "tuning.backend." not in module:
            importlib.import_module(module)
    assert "recbole_ext.model.meantime" in sys.modules

print(changed_by(import_all))
"""
    assert python(PARTS_CHANGED + code).strip() == "[]"


def test_naming_a_model_of_recbole_does_not_make_torch_look_for_nan_in_every_backward_pass():
    code = """
import torch
from recbole_ext import Config
Config("SASRec", "ml-100k", argv=[])
print(torch.is_anomaly_enabled(), end=" ")
import recbole.model.sequential_recommender.sine as sine
importlib.reload(sine)
print(torch.is_anomaly_enabled())
"""
    assert python("import importlib" + code).split() == ["False", "True"]


def test_without_recbole_the_import_names_the_command_that_installs_it(tmp_path):
    # -S leaves out all that is installed, so the package has to lie somewhere else
    shutil.copytree(PACKAGE, tmp_path / "recbole_ext", ignore=shutil.ignore_patterns("__pycache__"))
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
try:
    import recbole_ext
except ImportError as error:
    print(error)
"""
    assert "pip install --no-deps recbole==1.2.1" in python(code, "-I", "-S")


def test_without_recbole_the_command_says_so_in_one_sentence(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "recbole_ext", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGE.parent / "run_recbole_ext.py", tmp_path)
    command = [sys.executable, "-S", str(tmp_path / "run_recbole_ext.py"), "--model=MEANTIME"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={}, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "pip install --no-deps recbole==1.2.1" in done.stderr


@pytest.mark.parametrize("name", recbole_ext.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(recbole_ext, name).__name__ == name if name != "MODELS" else recbole_ext.MODELS
    assert name in dir(recbole_ext)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_thing"):
        recbole_ext.no_such_thing  # noqa: B018
    with pytest.raises(ImportError, match="no_such_thing"):
        from recbole_ext import no_such_thing  # noqa: F401


def test_lazy_names_are_the_public_ones():
    assert set(recbole_ext._HOMES) == set(recbole_ext.__all__)


@pytest.mark.parametrize(
    ("missing", "logged"), [(SEARCH_AND_DRAWING, "FLOPs: "), (("thop", "distutils"), "FLOPs: not counted")]
)
def test_a_run_finishes_without(missing, logged, tmp_path, write_events, random_events):
    data_path = write_events(random_events())
    arguments = [
        "--model=MEANTIME", "--dataset=toy", f"--data_path={data_path}", "--epochs=1", "--hidden_size=16",
        "--inner_size=32", "--MAX_ITEM_LIST_LENGTH=8", "--topk=[5]", "--valid_metric=NDCG@5", "--use_gpu=False",
        "--show_progress=False", "--json=result.json",
    ]  # fmt: skip
    code = f"""
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from recbole_ext.cli.entry import main
sys.exit(main({arguments!r}))
"""
    python(code, folder=tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    assert 0 <= result["test_result"]["ndcg@5"] <= 1
    log = "".join(file.read_text() for file in (tmp_path / "log").rglob("*.log"))
    plain = log.replace("\x1b[1;34m", "").replace("\x1b[0m", "")
    assert logged in plain
    assert ("not counted" in plain) == ("not counted" in logged)
