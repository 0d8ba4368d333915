"""The papers as studies: benchmarks by name, recipes, their runner, and analyses that only a table needs."""
