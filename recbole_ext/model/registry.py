"""From the name of a model to its class: first this package's models, then RecBole's."""

import re
from pathlib import Path

import recbole
import torch
from recbole.utils import get_model

from recbole_ext.errors import InputError
from recbole_ext.utils.wording import nearest

FAMILIES = sorted(Path(recbole.__file__).parent.joinpath("model").glob("*_recommender"))


def find_model(model: str | type | None) -> type:
    """The class of a model.

    Args:
        model: a name, or the class itself. `"recbole.LightSANs"` is RecBole's class, `"LightSANs"` this package's.

    Raises:
        InputError: the model does not exist, needs a package that is not installed, or is not a model class.
    """
    from recbole_ext.model import MODELS

    if model is None:
        raise InputError(f"no model is named; give --model, one of {', '.join(MODELS)} or a model of RecBole.")
    if isinstance(model, str):
        if model.startswith("recbole."):
            return _recbole_model(model.removeprefix("recbole."), [])
        return MODELS.get(model) or _recbole_model(model, list(MODELS))
    if not (isinstance(model, type) and hasattr(model, "type") and hasattr(model, "full_sort_predict")):
        raise InputError(f"{model!r} is not a model; give a name, or a subclass of one of RecBole's recommenders.")
    return model


def name_of(model: str | type) -> str:
    """The name by which `find_model` finds a class, e.g. `recbole.LightSANs` for RecBole's."""
    from recbole_ext.model import MODELS

    if isinstance(model, str):
        return model
    hidden = model.__name__ in MODELS and model.__module__.startswith("recbole.model.")
    return f"recbole.{model.__name__}" if hidden else model.__name__


def class_path(model: type) -> str:
    """The import path of a class for checkpoints; for models of this package without the name of the file."""
    from recbole_ext.model import MODELS

    module = model.__module__.removesuffix(".model") if model in MODELS.values() else model.__module__
    return f"{module}.{model.__qualname__}"


def is_ours(model: type) -> bool:
    """Whether the class itself is a model of this package."""
    from recbole_ext.model import MODELS

    return MODELS.get(model.__name__) is model


def is_known(model: type) -> bool:
    """Whether the class itself is a model of this package or of RecBole."""
    return is_ours(model) or model.__module__.startswith("recbole.model.")


def _recbole_model(name: str, ours: list[str]) -> type:
    # importing RecBole's sequential models turns on anomaly detection, which slows every backward pass (SINE does it)
    anomaly_detection = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    try:
        return get_model(name)
    except ModuleNotFoundError as error:
        # for an unknown name, RecBole also imports wrappers of libraries that may be missing
        if any(folder.joinpath(f"{name.lower()}.py").is_file() for folder in FAMILIES):
            raise InputError(f"model '{name}' needs the package '{error.name}', which is not installed.") from error
        cause: Exception = error
    except (ValueError, AttributeError) as error:
        cause = error
    finally:
        torch.autograd.set_detect_anomaly(*anomaly_detection)
    near = nearest(name, [*_recbole_names(), *ours])
    if not ours:
        raise InputError(f"RecBole has no model '{name}'{f'; it has {near}' if near else ''}.") from cause
    hint = f"did you mean '{near}'?" if near else f"recbole_ext has {', '.join(ours)}."
    raise InputError(f"there is no model '{name}'; {hint}") from cause


def _recbole_names() -> list[str]:
    """Names of RecBole's models: classes that have the name of their file."""
    names = []
    for file in (file for folder in FAMILIES for file in folder.glob("*.py")):
        classes = re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
        names += [name for name in classes if name.lower() == file.stem]
    return names
