"""LightSANs: low-rank attention through latent interests, with decoupled positions."""

from recbole_ext.model.lightsans.model import LightSANs
from recbole_ext.model.lightsans.recbole_compat import from_recbole

__all__ = ["LightSANs", "from_recbole"]
