"""profkit: mark a training step once, record it, and read where each millisecond goes."""
