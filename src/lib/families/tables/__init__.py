"""The rows, one per model_type: what a config.json does not say."""
