"""The one loop of gradient descent, and what it needs: stages, optimisers, checkpoints, several processes."""
