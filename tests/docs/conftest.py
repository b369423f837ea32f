"""What the tests of README and of the pages share."""

from pathlib import Path

import pytest

from tests import small_data


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder above that of the small data set."""
    folder = tmp_path_factory.mktemp("small")
    small_data.written(folder)
    return folder
