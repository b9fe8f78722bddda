"""The encoders behind `assets/vectors/embed.py`: one module a step of making and running one."""
