"""One module per revision, numbered in order."""

__all__: list[str] = []
