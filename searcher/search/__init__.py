"""One search: its plan, its study in the database, the loop that makes its runs, its answer."""
