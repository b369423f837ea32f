"""Numbers in sentences."""


def counted(number: int, noun: str) -> str:
    """`1 event`, `2,000 events`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
