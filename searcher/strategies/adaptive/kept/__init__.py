"""The criterion `kept`: how many of the later runs keep the accuracy."""
