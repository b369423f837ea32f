"""RecBole's configuration, with the names, files and checks of this package on top."""

import os
import sys
from collections.abc import Sequence
from logging import getLogger
from typing import Any

import numpy as np
from recbole.config import Config as RecBoleConfig

from recbole_ext.config import checks, columns, evaluation
from recbole_ext.config import negative_sampling as sampling
from recbole_ext.config.known_keys import DERIVED, OF_TRANSFORMS, known_keys, unknown_key_sentence, without_effect
from recbole_ext.config.paths import check_dataset_name, dataset_dir, properties_dir, setting_or_file
from recbole_ext.config.schema import string, validator_of
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

    Keys that only training or evaluation needs are checked there, by `data_preparation`, the trainer and
    `run_recbole`, because a configuration may be used to read data only.

    Attributes:
        given (set[str]): the keys that the user set.
        changed_defaults (list[str]): a sentence for each default of evaluation that was changed to fit the user's keys.

    Raises:
        InputError: a key, a value or a name is wrong; the message says what would be right.
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
        given = {str(key): value for key, value in (config_dict or {}).items()}
        with recbole_errors_as_input_error("these keys"):
            super().__init__(model, dataset, config_file_list, given)
        contract.check_config(self.model_class, self)

    # ------------------------------------------------------------------ reading the sources

    def compatibility_settings(self) -> None:
        """Define the NumPy names that RecBole uses and NumPy 2 has removed."""
        kinds: dict[str, Any] = {
            "float": np.float64, "int": np.int_, "long": np.int_, "bool": np.bool_,
            "str": np.str_, "object": np.object_,
        }  # fmt: skip
        for name, kind in kinds.items():
            if name not in np.__dict__:
                setattr(np, name, kind)

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
            merged.update(read_yaml(setting_or_file(str(file))))
        return merged

    def _load_cmd_line(self):
        if self.argv is not None:
            return parse_arguments(self.argv)
        if "ipykernel" in sys.modules:  # a notebook's arguments are Jupyter's
            return {}
        return parse_arguments(sys.argv[1:], strict=False)

    def _convert_config_dict(self, config_dict):
        return config_dict  # _get_final_config_dict parses text, when the validators of the keys are known

    def _get_model_and_dataset(self, model, dataset):
        external = self.external_config_dict
        model = find_model(model if model is not None else external.get("model"))
        dataset = dataset if dataset is not None else external.get("dataset")
        if dataset is None:
            raise InputError("no data set is named; give --dataset, e.g. --dataset=ml-100k.")
        return super()._get_model_and_dataset(model, check_dataset_name(validate("dataset", dataset, string)))

    def _load_internal_config_dict(self, model, model_class, dataset):
        # a user's class has the defaults of the known model that it extends
        base = next((cls for cls in model_class.__mro__ if is_known(cls)), model_class)
        # RecBole has a LightSANs, too; its property file must not change ours
        ours = is_ours(base)
        super()._load_internal_config_dict("" if ours else base.__name__, model_class, dataset)
        files = ["overall.yaml", f"dataset/{dataset}.yaml", *([f"model/{base.__name__}.yaml"] if ours else [])]
        own = [read_property_file(str(file)) for file in map(properties_dir().joinpath, files) if file.is_file()]
        self.own_keys = {key for values in own for key in values}
        for values in own:
            self.internal_config_dict.update(values)

    def _get_final_config_dict(self):
        defaults = self.internal_config_dict
        sources = (self.file_config_dict, self.variable_config_dict, self.cmd_config_dict)
        self._refuse_unknown(sources)
        for source in sources:
            bare = source is self.cmd_config_dict  # here True means a key without a value; all values are text
            source.update({key: self._validate(key, value, bare and value is True) for key, value in source.items()})
        self._merge_external_config_dict()
        external, self.given = self.external_config_dict, set(self.external_config_dict)
        if "eval_args" in external:  # each source may set some of its keys
            external["eval_args"] = {}
            for source in (defaults, *sources):
                external["eval_args"].update(source.get("eval_args", {}))
        final = super()._get_final_config_dict()
        sampling.resolve_negative_sampling(final, self.given, self.model_class)
        columns.resolve_columns(final, self.given, self.model_class)
        self.changed_defaults = evaluation.resolve_defaults(final, self.given, self.model_class)
        return final

    def validated(self, key: str, value: Any) -> Any:
        """The normalised form of another value for a key.

        Raises:
            InputError: nothing reads the key, or the value is not valid for it.
        """
        # the value of transform may change, too, so the keys of every transform are allowed
        known = self._known_keys() | {name for names in OF_TRANSFORMS.values() for name in names}
        if key not in known and not self["allow_unknown"]:
            raise InputError(unknown_key_sentence(key, self._known_keys(), name_of(self.model_class)))
        return self._validate(key, value)

    def _known_keys(self) -> set[str]:
        defaults = self.internal_config_dict
        transform = self.external_config_dict.get("transform", defaults.get("transform"))
        return known_keys(self.model_class, defaults, transform)

    def _validate(self, key: str, value: Any, bare: bool = False) -> Any:
        """The normalised value of a key; `bare` if the command line has the key without a value."""
        validators = contract.validators(self.model_class)
        default = self.internal_config_dict.get(key)
        validator = validators.get(key) or validator_of(key, default, key in self.own_keys)
        if isinstance(value, str) and not validator.raw_text:
            try:
                value = parse_literal(value)
            except InputError as error:
                raise InputError(f"key '{key}': {error}") from error
        if bare and type(validator) is Validator and not isinstance(default, (bool, type(None))):
            raise InputError(f"--{key} has no value; give it one such as {default!r}.")
        try:
            return validate(key, value.tolist() if hasattr(value, "tolist") else value, validator)
        except InputError as error:
            if not bare:
                raise
            raise InputError(f"--{key} has no value; it{str(error).partition('; it')[2]}") from None

    def _refuse_unknown(self, sources: Sequence[dict[str, Any]]) -> None:
        known, shared = self._known_keys(), without_effect(self.model_class)
        name = name_of(self.model_class)
        allow = any(self._validate(key, source[key]) for source in sources for key in source if key == "allow_unknown")
        for source in sources:
            from_host = self.argv is None and source is self.cmd_config_dict
            if "config_files" in source and not from_host:  # RecBole's own scripts read that argument themselves
                raise InputError("config_files cannot be a key; name files on the command line or in code.")
            for key in [key for key in source if key not in known and not self._is_default(key, source[key])]:
                sentence = unknown_key_sentence(key, known, name)
                if not from_host and (not allow or key in DERIVED):
                    raise InputError(sentence)
                getLogger().warning(sentence)
                if not allow:  # the host program may have other arguments
                    del source[key]
            for key in shared & source.keys():
                if not self._is_default(key, source[key]):
                    getLogger().warning(f"key '{key}' has no effect: {name} does not read it.")

    def _is_default(self, key: str, value: Any) -> bool:
        """Whether a value is the default of its key, so that it changes nothing."""
        return key in self.internal_config_dict and self._validate(key, value) == self.internal_config_dict[key]

    # ------------------------------------------------------------------ derived keys and checks

    def _set_default_parameters(self):
        final = self.final_config_dict
        checks.check_environment(final, self.model_class)
        data_path, metrics = final["data_path"], final["metrics"]
        checks.check_loss_type(final, self.model_class)
        final["metrics"] = evaluation.metrics_accepted_by_recbole(metrics, final["eval_args"])
        bigger = final.get("valid_metric_bigger")
        super()._set_default_parameters()
        final["metrics"] = metrics
        if "valid_metric_bigger" in self.given and bigger != final["valid_metric_bigger"]:
            raise InputError(
                f"valid_metric_bigger is {bigger}, but it follows from valid_metric {final['valid_metric']}, of which "
                f"{'more' if final['valid_metric_bigger'] else 'less'} is better; leave it out."
            )
        checks.check_transform(final, self.model_class)
        checks.check_history(final, self.model_class)
        checks.check_files(final)
        final["data_path"] = self._find_data(data_path)
        final["checkpoint_dir"] = absolute(final["checkpoint_dir"], "checkpoint_dir")
        if final["log_dir"] != ".":  # "." stays: the working directory may differ when the run is resumed
            final["log_dir"] = absolute(final["log_dir"], "log_dir")
        sampling.warn_of_unused_labels(final, self.model_class)

    def _find_data(self, data_path: str) -> str:
        parts = self.final_config_dict["benchmark_filename"]
        return dataset_dir(data_path, self.dataset, "data_path" in self.given, parts)

    def _init_device(self):
        final = self.final_config_dict
        outside = os.environ.get("CUDA_VISIBLE_DEVICES")
        given = final["gpu_id"] if "gpu_id" in self.given or outside is None else outside
        given = "" if given is None or not final["use_gpu"] else given
        final["gpu_id"] = ",".join(given) if isinstance(given, list) else given
        super()._init_device()
        if not final["use_gpu"]:  # only this run is without a GPU; restore the environment of the process
            os.environ.pop("CUDA_VISIBLE_DEVICES")
            if outside is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = outside

    # ------------------------------------------------------------------ for checkpoints

    def to_dict(self) -> dict[str, Any]:
        """The keys and values that repeat this run, as text, numbers, lists and dictionaries."""
        return {key: to_builtin(value) for key, value in self.final_config_dict.items() if key not in DERIVED}


class OfflineConfig(Config):
    """The configuration of a run whose data files are missing or not needed."""

    def _find_data(self, data_path: str) -> str:
        return data_path
