"""One search in the database: its plan, Optuna's study, and what strategies see of it."""
