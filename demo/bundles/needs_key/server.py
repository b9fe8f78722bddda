"""A fault on purpose: ends at start unless it is given an API key of its own form."""

import os
import re
import sys

from stdio import serve, tool

if not re.fullmatch(r"wk_live_[0-9a-f]{24}", os.environ.get("WEATHERKEY_API_KEY", "")):
    sys.stderr.write("Error: API key required. Set WEATHERKEY_API_KEY (wk_live_...) and retry.\n")
    sys.exit(1)


@tool(
    "Tell today's weather for a city.",
    required=["city"],
    city={"type": "string", "description": "Name of the city"},
)
def todays_weather(city):
    return f"Mild, as always in {city}."


serve()
