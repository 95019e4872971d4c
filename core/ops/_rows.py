"""What the row operators share."""


def padded(columns: int) -> int:
    """The power of two that holds a row: the width TileLang's reductions have a layout for."""
    return 1 << max(0, columns - 1).bit_length()
