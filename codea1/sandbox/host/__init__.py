"""The trusted side of the sandbox."""
