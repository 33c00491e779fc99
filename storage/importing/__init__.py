"""Reads recorded training runs from logs, and puts them into the database."""
