"""RecBole's configuration, with the names, files and checks of this package on top."""

import copy
import os
import pkgutil
import sys
from collections.abc import Sequence
from logging import getLogger
from typing import Any

import numpy as np
import torch
from recbole.config import Config as RecBoleConfig
from recbole.utils import ModelType, get_model

from recbole_ext.config import checks
from recbole_ext.config.command_line import parse_arguments
from recbole_ext.config.keys import check_type, known_keys, recbole_defaults, unknown_key_sentence
from recbole_ext.config.paths import dataset_dir, properties_dir
from recbole_ext.config.values import NONE_WORDS, LiteralLoader, parse_literal, plain, read_yaml
from recbole_ext.errors import InputError

# What RecBole derives from other keys; never read back from a checkpoint.
DERIVED = {
    "MODEL_TYPE", "MODEL_INPUT_TYPE", "eval_type", "valid_metric_bigger", "device", "single_spec", "local_rank",
    "valid_neg_sample_args", "test_neg_sample_args", "MASK_INDEX", "MASK_ITEM_SEQ", "POS_ITEMS", "NEG_ITEMS",
}  # fmt: skip


class Config(RecBoleConfig):
    """All settings of a run: command line > `config_dict` > files > our yaml > RecBole's defaults.

    Args:
        model: name (one of ours first, then RecBole's) or class of the model.
        dataset: name of the data set.
        config_file_list: YAML files; later ones win.
        config_dict: keys and values; texts are read as literals.
        argv: command-line arguments, all of which must be keys. `None` reads those of the running program, as
            RecBole does, and skips what is not a key; `[]` reads none.

    Raises:
        InputError: something in the request is wrong; one sentence says what and what would be right.
    """

    def __init__(
        self,
        model: str | type | None = None,
        dataset: str | None = None,
        config_file_list: Sequence[str] | None = None,
        config_dict: dict[str, Any] | None = None,
        argv: Sequence[str] | None = None,
    ):
        self.argv = argv
        try:
            super().__init__(model, dataset, config_file_list, dict(config_dict or {}))
        except InputError:
            raise
        except (
            ValueError,
            KeyError,
            TypeError,
            NotImplementedError,
            RuntimeError,
            AssertionError,
            AttributeError,
        ) as error:
            # RecBole's own refusals, as the one kind that callers have to know
            raise InputError(str(error.args[0]) if error.args else str(error)) from error
        checks.check_metrics(self)

    # ------------------------------------------------------------------ reading

    def compatibility_settings(self) -> None:
        """Give back the NumPy names that RecBole's code uses and NumPy 2 no longer has."""
        kinds: dict[str, Any] = {
            "float": np.float64, "int": np.int_, "long": np.int_, "bool": np.bool_,
            "str": np.str_, "object": np.object_,
        }  # fmt: skip
        for name, kind in kinds.items():
            if name not in np.__dict__:
                setattr(np, name, kind)

    def _build_yaml_loader(self):
        return LiteralLoader

    def _load_config_files(self, file_list):
        if isinstance(file_list, (str, os.PathLike)):
            file_list = [file_list]
        merged: dict[str, Any] = {}
        for file in file_list or []:
            merged.update(read_yaml(str(file)))
        return merged

    def _load_cmd_line(self):
        if self.argv is not None:
            return dict(parse_arguments(self.argv))
        if "ipykernel" in sys.modules:  # a notebook's arguments are Jupyter's
            return {}
        return dict(parse_arguments(sys.argv[1:], strict=False))

    def _convert_config_dict(self, config_dict):
        return config_dict  # texts are read in _merge_external_config_dict, once the defaults are known

    def _get_model_and_dataset(self, model, dataset):
        from recbole_ext.model import MODELS

        model = model if model is not None else self.external_config_dict.get("model")
        dataset = dataset if dataset is not None else self.external_config_dict.get("dataset")
        if model is None:
            raise InputError(f"no model is named; give --model, one of {', '.join(MODELS)} or a model of RecBole.")
        if dataset is None:
            raise InputError("no data set is named; give --dataset, e.g. --dataset=ml-100k.")
        if isinstance(model, str):
            model = MODELS.get(model) or _recbole_model(model, MODELS)
        if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
            raise InputError(f"{model!r} is not a model; give a name or a subclass of SequentialRecommender.")
        return super()._get_model_and_dataset(model, str(dataset))

    def _load_internal_config_dict(self, model, model_class, dataset):
        from recbole_ext.model import MODELS

        # RecBole has a LightSANs of its own: its property file must not reach a class of ours with the same name
        ours = MODELS.get(model) is model_class
        super()._load_internal_config_dict("" if ours else model, model_class, dataset)
        self.recbole_defaults = copy.deepcopy(self.internal_config_dict)
        defaults = self.internal_config_dict
        for kind, name in (("package", "package"), ("dataset", dataset), ("model", model if ours else "")):
            path = properties_dir() / kind / f"{name}.yaml"
            path = properties_dir() / "overall.yaml" if kind == "package" else path
            if name and path.is_file():
                defaults.update(read_yaml(str(path)))

    def _get_final_config_dict(self):
        defaults = self.internal_config_dict
        known = known_keys(self.model_class, defaults)
        self.given = set()
        for source in (self.file_config_dict, self.variable_config_dict, self.cmd_config_dict):
            for key in list(source):
                source[key] = _read_value(key, source[key], defaults)
        self._merge_external_config_dict()
        self._check_unknown(known)
        external = self.external_config_dict
        reference = {**recbole_defaults("overall.yaml", "dataset/sample.yaml"), **defaults}
        for key in external:
            external[key] = check_type(key, external[key], reference.get(key))
        self.given = set(external)
        if isinstance(external.get("eval_args"), dict) and isinstance(defaults.get("eval_args"), dict):
            external["eval_args"] = {**defaults["eval_args"], **external["eval_args"]}
        final = copy.deepcopy(super()._get_final_config_dict())
        checks.settle_negative_sampling(final, self.given, self.model_class)
        checks.settle_time_column(final, self.given, self.model_class)
        return final

    def _check_unknown(self, known: set[str]) -> None:
        external = self.external_config_dict
        allow = external.get("allow_unknown") is True
        for key in [key for key in external if key not in known]:
            sentence = unknown_key_sentence(key, known, self.model)
            from_host = self.argv is None and key in self.cmd_config_dict
            if not allow and not from_host:
                raise InputError(sentence)
            getLogger().warning(sentence)
            if from_host and not allow:  # the arguments of a program that merely uses this library are its own
                del external[key]

    # ------------------------------------------------------------------ what follows from the keys

    def _set_default_parameters(self):
        final = self.final_config_dict
        checks.check_devices(final)
        data_path = str(final["data_path"])
        super()._set_default_parameters()
        final["data_path"] = dataset_dir(data_path, self.dataset, "data_path" in self.given)
        final["checkpoint_dir"] = os.path.abspath(os.path.expanduser(str(final["checkpoint_dir"])))
        if final["MODEL_TYPE"] == ModelType.SEQUENTIAL and final["eval_args"]["order"] != "TO":
            raise InputError(f"eval_args order is '{final['eval_args']['order']}'; sequential models need 'TO'.")

    def _init_device(self):
        final = self.final_config_dict
        outside = os.environ.get("CUDA_VISIBLE_DEVICES")
        if not final["use_gpu"]:
            final["gpu_id"] = ""
        elif outside is not None and "gpu_id" not in self.given:
            final["gpu_id"] = outside
        super()._init_device()
        if not final["use_gpu"]:  # the choice is this run's; the process keeps the devices it was given
            os.environ.pop("CUDA_VISIBLE_DEVICES")
            if outside is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = outside

    # ------------------------------------------------------------------ plain values, for checkpoints

    def as_plain(self) -> dict[str, Any]:
        """The keys and values that make this run again, as text, numbers, lists and dictionaries only."""
        return {key: plain(value) for key, value in self.final_config_dict.items() if key not in DERIVED}


def _read_value(key: str, value: Any, defaults: dict[str, Any]) -> Any:
    """Texts as literals, except where the default is a text: a data set may be called 2023."""
    is_text = isinstance(defaults.get(key), str) or key in {"model", "dataset"}
    if isinstance(value, str):
        if not is_text:
            return parse_literal(value)
        return None if value.strip().lower() in NONE_WORDS - {""} else value
    if is_text and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value


def _recbole_model(name: str, ours: dict[str, type]) -> type:
    import difflib

    try:
        return get_model(name)
    except (ValueError, AttributeError, ModuleNotFoundError) as error:
        known = list(ours)
        for family in ("sequential", "general", "context_aware", "knowledge_aware"):
            package = __import__(f"recbole.model.{family}_recommender", fromlist=["x"])
            files = {module.name for module in pkgutil.iter_modules(package.__path__)}
            known += [key for key in vars(package) if key.lower() in files]
        folded = {key.lower(): key for key in known}
        near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
        hint = f"did you mean '{folded[near[0]]}'?" if near else f"ours are {', '.join(ours)}."
        raise InputError(f"there is no model '{name}'; {hint}") from error
