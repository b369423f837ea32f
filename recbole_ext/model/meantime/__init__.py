"""MEANTIME: attention heads with a temporal kernel each."""

from recbole_ext.model.meantime.model import MEANTIME

__all__ = ["MEANTIME"]
