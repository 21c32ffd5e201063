"""The commands of `python -m codea1.lab`."""
