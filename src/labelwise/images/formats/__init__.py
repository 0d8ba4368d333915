"""Annotations of other tools: each format is one module that turns a file into ``Annotations``; ``find`` knows them all."""
