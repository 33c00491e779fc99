"""What can make the runs of a search: for each kind its options, and how it is put together."""
