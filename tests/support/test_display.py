"""What is shown: JSON that every reader takes."""

import json
import math

from labelwise.support.text import as_json


def test_numbers_that_json_does_not_have_are_null() -> None:
    document = {"a": math.nan, "b": [1.5, math.inf, {"c": -math.inf}], "d": "NaN", "e": (1, None)}
    assert json.loads(as_json(document)) == {"a": None, "b": [1.5, None, {"c": None}], "d": "NaN", "e": [1, None]}
