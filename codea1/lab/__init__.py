"""What researchers do around training: nothing that a run imports. Commands may use it."""
