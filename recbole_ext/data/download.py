"""Data sets that RecBole knows where to fetch."""

import os
from contextlib import suppress
from logging import getLogger

from recbole.data.dataset import Dataset

from recbole_ext.errors import InputError


def download(config) -> None:
    """Let RecBole fetch the data set of `config` into its `data_path`, for a model of any kind.

    Raises:
        InputError: it could not be fetched.
    """
    folder, name = config["data_path"], config["dataset"]
    bare = Dataset.__new__(Dataset)  # fetching is a method of data sets, of which nothing else is there yet
    bare.config, bare.dataset_path, bare.dataset_name, bare.logger = config, folder, name, getLogger()
    try:
        bare._download()
    except (OSError, EOFError) as error:
        with suppress(OSError):
            os.rmdir(folder)  # where one is, RecBole does not try again
        raise InputError(
            f"data set '{name}' is not in {folder} and could not be downloaded: {error}; set data_path to the folder "
            f"that holds it, or unpack {bare._get_download_url('url')} there."
        ) from error
    except (ValueError, RuntimeError, AttributeError):
        # at the end RecBole waits for its other processes, which one process alone is not able to
        if not os.path.isfile(os.path.join(folder, f"{name}.inter")):
            raise
