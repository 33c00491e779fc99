"""Runs and policies on MLflow. It gets copies: the database alone is asked for what is known."""
