import sys

from recbole_ext.cli.entry import program

if __name__ == "__main__":  # the process of a search imports this file again
    sys.exit(program())
