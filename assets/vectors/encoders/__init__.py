"""The encoders behind `assets/vectors/embed.py`: one module a step of making and running one.

What belongs here: weights, the ONNX graph, running it, saving and opening it, other embedders.
What does not: what the rest of the project imports; that is `embed.py`.
"""
