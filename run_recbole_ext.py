"""The command line: `python run_recbole_ext.py --model=MEANTIME` in a checkout, `recbole-ext` when installed."""

import sys


def main() -> int:
    """Run it; returns the exit status. Without RecBole that is 2, with the command that installs it."""
    try:
        from recbole_ext.cli.entry import program

        return program()
    except KeyboardInterrupt:  # during the imports, before signals are handled
        return 130
    except ImportError as error:
        if error.name != "recbole":
            raise
        print(f"recbole-ext: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
