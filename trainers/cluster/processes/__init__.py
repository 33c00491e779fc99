"""Clusters of processes, their chief included, and what starts them."""
