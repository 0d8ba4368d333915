"""The HTTP service: one classifier, a route per question, durable taught labels, and a web page."""
