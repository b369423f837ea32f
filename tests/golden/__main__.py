"""`python -m tests.golden FILE...`: hold our MEANTIME against reference files; exit 1 past the tolerances."""

import sys

from tests.golden.compare import compare, tolerance


def main(files: list[str]) -> int:
    if not files:
        print("usage: python -m tests.golden FILE...", file=sys.stderr)
        return 2
    failed = False
    for file in files:
        allowed = tolerance(file)
        print(f"{file} (tolerance {allowed:g})")
        for name, error in compare(file).items():
            good = error <= allowed
            failed |= not good
            print(f"  {name:<12} {error:.2e} {'' if good else 'PAST THE TOLERANCE'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
