"""`python -m tests.golden FILE...`: hold our MEANTIME against reference files.

Exit status: 0 all agree, 1 an error is past the tolerance, 2 there is no such file or it is no reference file.
"""

import sys
from collections.abc import Sequence

from tests.golden.compare import compare
from tests.golden.reference import BadReference, read


def main(files: Sequence[str]) -> int:
    """Print the largest error of each quantity of each file; returns the exit status."""
    if not files:
        print("usage: python -m tests.golden FILE...", file=sys.stderr)
        return 2
    failed = False
    for file in files:
        try:
            reference = read(file)
            errors = compare(reference)
        except BadReference as error:
            text = str(error)
            print(text if text.startswith(file) else f"{file}: {text}", file=sys.stderr)
            return 2
        print(f"{file} (tolerance {reference.tolerance:g})")
        for name, error in errors.items():
            good = error <= reference.tolerance  # false for NaN
            failed |= not good
            print(f"  {name:<12} {error:.2e} {'' if good else 'PAST THE TOLERANCE'}".rstrip())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
