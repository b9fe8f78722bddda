"""Request and call pairs: written per contract, checked by rules, judged, summarised and exported.

May import the stages before it (`assets/contracts`, `assets/catalogue`, `assets/vectors`) and the
warehouse.
"""
