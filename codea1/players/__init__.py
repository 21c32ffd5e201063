"""A policy that answers and learns, its compiled functions and critic; one that only answers; its export."""
