"""`register` adds the models of this package to RecBole, for scripts that call RecBole's functions."""

import importlib
import sys
from functools import wraps
from logging import getLogger
from typing import Any

from recbole_ext.errors import InputError

RECBOLE_MODELS = "recbole.model.sequential_recommender"


def register(*names: str, override: bool = False) -> None:
    """Let RecBole's own `get_model`, `Config`, `run_recbole` and `load_data_and_model` find models of this package.

    It changes this process only, no files. For these models, RecBole's `Config` then reads the property files of this
    package and does not normalise columns, because normalised times are useless. RecBole's data set still rounds times
    to float32, and its checkpoints are still pickles, which torch 2.6 and later refuse to load;
    `recbole_ext.run_recbole` has neither limit.

    Args:
        names: models of this package; by default those whose name RecBole does not have, or all with `override`.
        override: whether to replace RecBole's model of the same name (LightSANs).

    Raises:
        InputError: there is no such model; or RecBole has a model of that name, and `override` is False.
    """
    from recbole_ext.model import MODELS

    for name in names:
        if name not in MODELS:
            raise InputError(f"register names '{name}'; it should be one of {', '.join(MODELS)}.")
    package = importlib.import_module(RECBOLE_MODELS)
    taken = [name for name in MODELS if getattr(package, name, MODELS[name]) is not MODELS[name]]
    for name in taken:
        if name in names and not override:
            raise InputError(f"RecBole already has a model {name}; set override=True to replace it.")
    for name in names or [name for name in MODELS if override or name not in taken]:
        if name in taken:
            getLogger().warning(f"register: RecBole's own functions now use the {name} of recbole_ext.")
        sys.modules[f"{RECBOLE_MODELS}.{name.lower()}"] = sys.modules[MODELS[name].__module__]
        setattr(package, name, MODELS[name])
    _add_defaults()


def _add_defaults() -> None:
    """Let RecBole's `Config` read this package's property files for its models; a second call changes nothing."""
    from recbole.config import Config

    from recbole_ext.config import Config as ExtendedConfig

    original = Config._load_internal_config_dict
    if getattr(original, "with_recbole_ext", False):
        return

    @wraps(original)
    def load(self: Any, model: str, model_class: type, dataset: str) -> None:
        original(self, model, model_class, dataset)
        if not isinstance(self, ExtendedConfig):  # which reads them itself
            self.internal_config_dict.update(_defaults_of(model_class))

    load.with_recbole_ext = True  # type: ignore[attr-defined]
    Config._load_internal_config_dict = load


def _defaults_of(model_class: type) -> dict[str, Any]:
    from recbole_ext.config.negative_sampling import OWN_NEGATIVES
    from recbole_ext.config.paths import properties_dir
    from recbole_ext.model.registry import is_ours
    from recbole_ext.utils.literals import read_yaml

    if not is_ours(model_class):
        return {}
    files = (properties_dir() / "overall.yaml", properties_dir() / "model" / f"{model_class.__name__}.yaml")
    defaults = {key: value for file in files for key, value in read_yaml(str(file)).items()}
    defaults["normalize_all"] = False
    if defaults.get("loss_type") in OWN_NEGATIVES:  # RecBole would sample negatives, which these losses cannot use
        defaults["train_neg_sample_args"] = None
    return defaults
