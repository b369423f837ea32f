import sys

from run_recbole_ext import main

if __name__ == "__main__":  # the process of a search imports this file again
    sys.exit(main())
