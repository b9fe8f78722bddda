"""A good call with one flaw: what a model or client would send in its place."""
