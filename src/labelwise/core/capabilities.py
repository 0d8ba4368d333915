"""What some models can do besides scoring, in the words that errors and ``--help`` share; ``model.can`` says what a model can.

Nothing is imported here: ``labelwise --help`` reads it.
"""

LEARN = "learn a label from example images"
LOCATE = "draw a heat map"
GENERATE = "generate features of a label from its description"
COMPARE = "compare images by a learned similarity"
WHITEN = "compare whitened embeddings"
