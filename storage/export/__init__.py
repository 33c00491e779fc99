"""Exports for other tools: tables in files, runs and policies on MLflow."""
