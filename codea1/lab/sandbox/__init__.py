"""The sandbox beside training: what it says of a machine, and cases of a file graded."""
