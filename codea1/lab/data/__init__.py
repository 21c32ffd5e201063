"""Other datasets as training sets, and what is changed of questions before training."""
