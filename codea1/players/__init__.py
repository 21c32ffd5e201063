"""A policy that answers and learns, its compiled functions and critic; its export."""
