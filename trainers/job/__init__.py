"""What is trained, and how: model, data, schedule."""
