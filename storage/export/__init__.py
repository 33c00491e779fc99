"""What leaves the database for other tools: tables in files, runs and policies on MLflow."""
