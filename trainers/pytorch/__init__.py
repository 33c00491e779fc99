"""The guarded switch as a callback, for trainings whose loop belongs to a library.

`lightning.py` is for PyTorch Lightning, `transformers.py` for Hugging Face's Trainer; each needs
the extra of its name.
"""
