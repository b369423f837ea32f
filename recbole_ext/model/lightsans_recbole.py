"""The former home of `from_recbole`; import it from `recbole_ext.model.lightsans`."""

from recbole_ext.model.lightsans.recbole_compat import from_recbole

__all__ = ["from_recbole"]
