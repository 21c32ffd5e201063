"""The sandbox beside training: the gradings of benchmarks, cases of a file, what it says of a machine."""
