"""The guarded switch as a callback, for libraries with a training loop of their own.

`lightning.py` is for PyTorch Lightning, `transformers.py` for Hugging Face's Trainer; each needs
the extra of its name.
"""
