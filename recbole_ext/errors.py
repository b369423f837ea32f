"""The one exception that means: the request was wrong, not the program."""


class InputError(ValueError):
    """A request that cannot be carried out as it stands.

    Its message is one sentence for a person: it names the file, line, field or key, the value found, and what
    would be right. The command line prints it without a traceback and exits with status 2.
    """


class SearchError(RuntimeError):
    """The request was right, but nothing came of it; the message says why, trial by trial."""
