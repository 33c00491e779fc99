"""The criterion `mean`, of the paper: what a setting's runs lose in the mean."""
