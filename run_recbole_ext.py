"""`python run_recbole_ext.py --model=MEANTIME`: the command line, from a checkout."""

import sys

from recbole_ext.cli import main

if __name__ == "__main__":
    sys.exit(main())
