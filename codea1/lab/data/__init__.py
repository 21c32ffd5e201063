"""Other datasets as training sets."""
