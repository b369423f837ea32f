"""The models of this package."""

from recbole_ext.model.bst import BST
from recbole_ext.model.lightsans import LightSANs
from recbole_ext.model.meantime import MEANTIME
from recbole_ext.model.tisasrec import TiSASRec

MODELS = {"MEANTIME": MEANTIME, "LightSANs": LightSANs, "BST": BST, "TiSASRec": TiSASRec}

__all__ = ["BST", "MODELS", "MEANTIME", "LightSANs", "TiSASRec"]
