"""Configuration: RecBole's `Config` with our models, our property files and checks before anything is trained."""

from recbole_ext.config.config import Config
from recbole_ext.config.paths import properties_file

__all__ = ["Config", "properties_file"]
