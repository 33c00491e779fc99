"""Decides which training runs a search makes, and when the timing policy is known."""

from syncswitch.storage.former import former_names

__getattr__ = former_names(
    __name__, {"syncswitch": "AdaptiveStrategy BinarySearchSampler PaperStrategy"}
)
