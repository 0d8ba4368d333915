"""Knowledge about labels: texts, attributes, order, parents."""
