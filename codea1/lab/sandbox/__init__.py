"""The sandbox without training: the gradings of benchmarks, cases of a file, what it says of a machine."""
