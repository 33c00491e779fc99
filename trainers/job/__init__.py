"""A training job: model, data, schedule, fingerprint."""
