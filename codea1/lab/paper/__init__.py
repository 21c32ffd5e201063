"""The Code-A1 paper's experiments, tables, published numbers and figures, filled from the folders of runs."""
