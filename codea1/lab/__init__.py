"""What researchers do around training. No room in front of the wall imports it; commands may."""
