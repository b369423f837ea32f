"""The models of this package."""

from recbole_ext.model.bst import BST
from recbole_ext.model.lightsans import LightSANs
from recbole_ext.model.meantime import MEANTIME

MODELS = {"MEANTIME": MEANTIME, "LightSANs": LightSANs, "BST": BST}

__all__ = ["BST", "MODELS", "MEANTIME", "LightSANs"]
