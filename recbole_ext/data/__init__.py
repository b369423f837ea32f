"""Data: RecBole's atomic files to loaders, on the event log."""

from recbole_ext.data.event_log_dataset import EventLogDataset
from recbole_ext.data.loaders import create_dataset, data_preparation

__all__ = ["EventLogDataset", "create_dataset", "data_preparation"]
