"""The version of this package, and those of what a result depends on."""

__version__ = "0.1.0"


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    import platform

    import numpy
    import pandas
    import recbole
    import torch

    return {
        "recbole_ext": __version__, "recbole": recbole.__version__, "torch": str(torch.__version__),
        "numpy": numpy.__version__, "pandas": pandas.__version__, "python": platform.python_version(),
    }  # fmt: skip
