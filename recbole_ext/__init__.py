"""recbole_ext: MEANTIME, LightSANs, BST and TiSASRec for RecBole, and a command line that runs RecBole's models, too.

Importing this package imports neither Ray nor plotly and changes nothing outside itself.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from recbole_ext.utils.versions import __version__ as __version__

if importlib.util.find_spec("recbole") is None:
    raise ImportError(
        "recbole_ext extends RecBole, which is not installed; run: pip install --no-deps recbole==1.2.1",
        name="recbole",
    )

if TYPE_CHECKING:
    from recbole_ext.comparison.compare import Comparison, compare
    from recbole_ext.config import Config, properties_file
    from recbole_ext.config.metrics import register_metric
    from recbole_ext.data import EventLogDataset, create_dataset, data_preparation
    from recbole_ext.errors import InputError, SearchError
    from recbole_ext.model import BST, MEANTIME, MODELS, LightSANs, TiSASRec
    from recbole_ext.quick_start import load_data_and_model, run_recbole
    from recbole_ext.registration import register
    from recbole_ext.serving import Recommender
    from recbole_ext.training.trainer import get_trainer
    from recbole_ext.tuning.run_search import search

__all__ = [
    "BST", "MEANTIME", "MODELS", "Comparison", "Config", "EventLogDataset", "InputError", "LightSANs", "Recommender",
    "SearchError", "TiSASRec", "compare", "create_dataset", "data_preparation", "get_trainer", "load_data_and_model",
    "properties_file", "register", "register_metric", "run_recbole", "search",
]  # fmt: skip

_HOMES = {
    "BST": "model", "MEANTIME": "model", "LightSANs": "model", "TiSASRec": "model", "MODELS": "model",
    "Config": "config", "properties_file": "config", "InputError": "errors", "SearchError": "errors",
    "EventLogDataset": "data", "create_dataset": "data", "data_preparation": "data", "get_trainer": "training.trainer",
    "load_data_and_model": "quick_start", "run_recbole": "quick_start", "search": "tuning.run_search",
    "Recommender": "serving", "register": "registration", "Comparison": "comparison.compare",
    "compare": "comparison.compare",
    "register_metric": "config.metrics",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: `import recbole_ext` itself stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'recbole_ext' has no attribute '{name}'")
    return getattr(importlib.import_module(f"recbole_ext.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
