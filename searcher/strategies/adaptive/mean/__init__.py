"""The criterion `mean`, of the paper: what a switch point's runs lose in the mean."""
