"""RecBole's `Config`, extended by the models, property files and checks of this package."""

import os
import sys
from collections.abc import Sequence
from logging import getLogger
from typing import Any

import numpy as np
import torch
from recbole.config import Config as RecBoleConfig
from recbole.utils import InputType

from recbole_ext.config import checks, columns, metrics, negative_sampling
from recbole_ext.config.known_keys import DERIVED, OF_TRANSFORMS, known_keys, unknown_key_sentence, without_effect
from recbole_ext.config.paths import check_dataset_name, dataset_dir, preset_or_file, properties_dir
from recbole_ext.config.schema import VALIDATORS, string, validator_of
from recbole_ext.distributed import processes
from recbole_ext.errors import InputError, recbole_errors_as_input_error
from recbole_ext.model import contract
from recbole_ext.model.registry import find_model, is_known, is_ours, name_of
from recbole_ext.utils.literals import (
    LiteralLoader,
    parse_arguments,
    parse_literal,
    read_property_file,
    read_yaml,
    to_builtin,
)
from recbole_ext.utils.paths import absolute
from recbole_ext.utils.validators import Validator, validate
from recbole_ext.utils.wording import nearest


class Config(RecBoleConfig):
    """All keys of a run. Precedence: command line, `config_dict`, files, our property files, RecBole's defaults.

    RecBole's constructor calls these hooks in this order; each uses the results of those before it:

    1. `compatibility_settings`, `_build_yaml_loader`
    2. `_load_config_files`, `_convert_config_dict`, `_load_cmd_line`: the three sources of keys
    3. `_get_model_and_dataset`: names and class of the model, name of the data set
    4. `_load_internal_config_dict` with `_update_internal_config_dict`: the defaults
    5. `_get_final_config_dict`: checks the keys, merges the sources, resolves dependent defaults
    6. `_set_default_parameters`: derived keys, checks of keys against each other, paths
    7. `_init_device`

    Args:
        model: name (one of ours first, then RecBole's) or class of the model.
        dataset: name of the data set.
        config_file_list: YAML files; later ones win.
        config_dict: keys and values; text is parsed as literals.
        argv: command-line arguments, all of which must be keys. `None` reads those of the running program, as
            RecBole does, and skips arguments that are not keys; `[]` reads none.

    `data_preparation`, the trainer and `run_recbole` check the keys that only training or evaluation needs, because a
    program may make a configuration only to read data.

    Attributes:
        user_keys (set[str]): the keys that the user set.
        changed_defaults (list[str]): a sentence for each evaluation default that was changed to fit the user's keys.

    Raises:
        InputError: a key, a value or a name is wrong.
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
        if not isinstance(config_dict, (dict, type(None))):
            raise InputError(f"config_dict is {config_dict!r}; it should be a dictionary of keys and values.")
        keys = {str(key): value for key, value in (config_dict or {}).items()}
        with recbole_errors_as_input_error("these keys"):
            super().__init__(model, dataset, config_file_list, keys)
        for key in contract.check_config(self.model_class, self):
            if key in self.user_keys and not self._is_default(key, self[key]):
                getLogger().warning(f"key '{key}' has no effect with the other keys of this run.")

    # ------------------------------------------------------------------ reading the sources

    def compatibility_settings(self) -> None:
        """Define the NumPy names that RecBole uses and NumPy 2 has removed."""
        types: dict[str, Any] = {
            "float": np.float64, "int": np.int_, "long": np.int_, "bool": np.bool_,
            "str": np.str_, "object": np.object_,
        }  # fmt: skip
        for name, numpy_type in types.items():
            if name not in np.__dict__:
                setattr(np, name, numpy_type)

    def _build_yaml_loader(self):
        return LiteralLoader

    def _update_internal_config_dict(self, file):
        values = read_property_file(file)
        self.internal_config_dict.update(values)
        return values

    def _load_config_files(self, file_list):
        if isinstance(file_list, (str, os.PathLike)):
            file_list = [file_list]
        if not isinstance(file_list, (list, tuple, type(None))):
            raise InputError(f"config_file_list is {file_list!r}; it should be a list of paths.")
        merged: dict[str, Any] = {}
        for file in file_list or []:
            merged.update(read_yaml(preset_or_file(str(file))))
        return merged

    def _load_cmd_line(self):
        if self.argv is not None:
            return parse_arguments(self.argv)
        if "ipykernel" in sys.modules:  # a notebook's arguments are Jupyter's
            return {}
        return parse_arguments(sys.argv[1:], strict=False)

    def _convert_config_dict(self, config_dict):
        return config_dict  # _get_final_config_dict parses text, because that needs the model's validators

    def _get_model_and_dataset(self, model, dataset):
        external = self.external_config_dict
        model = model if model is not None else external.get("model")
        dataset = dataset if dataset is not None else external.get("dataset")
        self._refuse_misspelt(model=model, dataset=dataset)
        if dataset is None:
            raise InputError("no data set is named; give --dataset, e.g. --dataset=ml-100k.")
        dataset = check_dataset_name(validate("dataset", dataset, string))
        return super()._get_model_and_dataset(find_model(model), dataset)

    def _refuse_misspelt(self, **names: Any) -> None:
        """Refuse a key that resembles one of these keys, if that has no value."""
        for name, value in names.items():
            misspelt = nearest(name, self.external_config_dict.keys() - VALIDATORS.keys())
            if value is None and misspelt:
                raise InputError(f"no {name} is named, but there is a key '{misspelt}'; did you mean '{name}'?")

    def _load_internal_config_dict(self, model, model_class, dataset):
        # a subclass of a model of this package or of RecBole has the defaults of that model
        base = next((cls for cls in model_class.__mro__ if is_known(cls)), model_class)
        ours = is_ours(base)  # then do not read RecBole's file of the same name (LightSANs.yaml)
        super()._load_internal_config_dict("" if ours else base.__name__, model_class, dataset)
        files = ["overall.yaml", f"dataset/{dataset}.yaml", *([f"model/{base.__name__}.yaml"] if ours else [])]
        self.package_keys: set[str] = set()
        for file in map(properties_dir().joinpath, files):
            if file.is_file():
                self.package_keys |= self._update_internal_config_dict(str(file)).keys()

    def _get_final_config_dict(self):
        defaults = self.internal_config_dict
        sources = (self.file_config_dict, self.variable_config_dict, self.cmd_config_dict)
        self._refuse_unknown(sources)
        for source in sources:
            for key, value in source.items():  # on the command line, True stands for a key without a value
                source[key] = self._validate(key, value, source is self.cmd_config_dict and value is True)
        self._merge_external_config_dict()
        external, self.user_keys = self.external_config_dict, set(self.external_config_dict)
        if "eval_args" in external:  # merge the sources, each of which may set some of its keys
            external["eval_args"] = {}
            for source in (defaults, *sources):
                external["eval_args"].update(source.get("eval_args", {}))
        user_eval_args = {name for source in sources for name in source.get("eval_args", {})}
        settings = super()._get_final_config_dict()
        negative_sampling.resolve_negative_sampling(settings, self.user_keys, self.model_class)
        columns.resolve_columns(settings, self.user_keys, self.model_class)
        columns.resolve_grouping(settings, user_eval_args)
        self.changed_defaults = metrics.resolve_defaults(settings, self.user_keys, self.model_class)
        return settings

    def validated(self, key: str, value: Any) -> Any:
        """The normalised form of a value that a search may try for a key.

        Raises:
            InputError: nothing reads the key, or the value is not valid for it.
        """
        # the search may also change transform, so the keys of every transform are allowed
        known = self._known_keys() | {name for names in OF_TRANSFORMS.values() for name in names}
        if key not in known and not self["allow_unknown"]:
            raise InputError(unknown_key_sentence(key, self._known_keys(), name_of(self.model_class)))
        return self._validate(key, value)

    def _known_keys(self) -> set[str]:
        defaults = self.internal_config_dict
        transform = self.external_config_dict.get("transform", defaults.get("transform"))
        return known_keys(self.model_class, defaults, transform)

    def _validate(self, key: str, value: Any, without_value: bool = False) -> Any:
        """The normalised value of a key; `without_value`: the command line has the key without a value."""
        validators = contract.validators(self.model_class)
        default = self.internal_config_dict.get(key)
        validator = validators.get(key) or validator_of(key, default, key in self.package_keys)
        if isinstance(value, str) and not validator.raw_text:
            try:
                value = parse_literal(value)
            except InputError as error:
                raise InputError(f"key '{key}': {error}") from error
        if without_value and type(validator) is Validator and not isinstance(default, (bool, type(None))):
            raise InputError(f"--{key} has no value; give it one such as {default!r}.")
        try:
            return validate(key, value.tolist() if hasattr(value, "tolist") else value, validator)
        except InputError as error:
            if not without_value:
                raise
            raise InputError(f"--{key} has no value; it{str(error).partition('; it')[2]}") from None

    def _refuse_unknown(self, sources: Sequence[dict[str, Any]]) -> None:
        known, unused, name = self._known_keys(), without_effect(self.model_class), name_of(self.model_class)
        allow = any(self._validate(key, source[key]) for source in sources for key in source if key == "allow_unknown")
        for source in sources:
            from_program = self.argv is None and source is self.cmd_config_dict
            if "config_files" in source and not from_program:  # RecBole's scripts read this argument
                raise InputError("config_files cannot be a key; name files on the command line or in code.")
            for key in [key for key in source if key not in known and not self._is_default(key, source[key])]:
                sentence = unknown_key_sentence(key, known, name)
                if not from_program and (not allow or key in DERIVED):
                    raise InputError(sentence)
                getLogger().warning(sentence)
                if not allow:  # it may be an argument of the running program
                    del source[key]
            for key in unused & source.keys():
                if not self._is_default(key, source[key]):
                    getLogger().warning(f"key '{key}' has no effect: {name} does not read it.")

    def _is_default(self, key: str, value: Any) -> bool:
        """Whether a value is the default of its key."""
        return key in self.internal_config_dict and self._validate(key, value) == self.internal_config_dict[key]

    # ------------------------------------------------------------------ derived keys and checks

    def _set_default_parameters(self):
        settings = self.final_config_dict
        checks.check_environment(settings, self.model_class)
        checks.check_loss_type(settings, self.model_class)
        data_path, names, bigger = settings["data_path"], settings["metrics"], settings.get("valid_metric_bigger")
        settings["metrics"] = metrics.metrics_accepted_by_recbole(names, settings["eval_args"])
        super()._set_default_parameters()
        if settings.get("loss_type") in negative_sampling.OWN_NEGATIVES:  # RecBole only knows CE
            settings.setdefault("MODEL_INPUT_TYPE", InputType.POINTWISE)
        settings["metrics"] = names
        if "valid_metric_bigger" in self.user_keys and bigger != settings["valid_metric_bigger"]:
            raise InputError(
                f"valid_metric_bigger is {bigger}, but for valid_metric {settings['valid_metric']} "
                f"{'larger' if settings['valid_metric_bigger'] else 'smaller'} values are better; leave it out."
            )
        checks.check_transform(settings, self.model_class)
        checks.check_history(settings, self.model_class)
        checks.check_files(settings)
        settings["data_path"] = self._find_data(data_path)
        settings["checkpoint_dir"] = absolute(settings["checkpoint_dir"], "checkpoint_dir")
        if settings["log_dir"] != ".":  # "." means the working directory, also that of a resumed run
            settings["log_dir"] = absolute(settings["log_dir"], "log_dir")
        negative_sampling.warn_of_unused_labels(settings, self.model_class)

    def _set_eval_neg_sample_args(self, phase):
        modes = self.final_config_dict["eval_args"]["mode"]
        mode = modes[phase]
        modes[phase] = mode.removesuffix(negative_sampling.UNSEEN)  # which `data_preparation` implements, not RecBole
        super()._set_eval_neg_sample_args(phase)
        modes[phase] = mode

    def _find_data(self, data_path: str) -> str:
        parts = self.final_config_dict["benchmark_filename"]
        return dataset_dir(data_path, self.dataset, "data_path" in self.user_keys, parts)

    def _init_device(self):
        settings = self.final_config_dict
        environment = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = settings["gpu_id"] if "gpu_id" in self.user_keys or environment is None else environment
        if environment is None and "gpu_id" not in self.user_keys and processes.size() > 1:
            gpus = list(map(str, range(torch.cuda.device_count())))
        gpus = "" if gpus is None or not settings["use_gpu"] else gpus
        settings["gpu_id"] = ",".join(gpus) if isinstance(gpus, list) else gpus
        super()._init_device()
        settings["device"] = processes.device_of(settings["device"])
        if not settings["use_gpu"]:  # RecBole hid the GPUs from the whole process; undo that
            os.environ.pop("CUDA_VISIBLE_DEVICES")
            if environment is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = environment

    # ------------------------------------------------------------------ for checkpoints

    def to_dict(self) -> dict[str, Any]:
        """The keys and values that repeat this run, as text, numbers, lists and dictionaries."""
        keys = {key: to_builtin(value) for key, value in self.final_config_dict.items() if key not in DERIVED}
        return {**keys, "model": name_of(self.model_class)}


class OfflineConfig(Config):
    """The configuration of a run whose data files are missing or not needed."""

    def _find_data(self, data_path: str) -> str:
        return data_path
