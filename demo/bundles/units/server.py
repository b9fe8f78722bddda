"""Units: conversions between units of everyday quantities."""

from stdio import serve, tool

# Factors to the base unit of each quantity.
FACTORS = {
    "length": {"mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0, "inch": 0.0254, "foot": 0.3048,
               "mile": 1609.344},
    "mass": {"mg": 1e-6, "g": 0.001, "kg": 1.0, "tonne": 1000.0, "ounce": 0.028349523125,
             "pound": 0.45359237},
    "volume": {"ml": 0.001, "l": 1.0, "cup": 0.2365882365, "pint": 0.473176473,
               "gallon": 3.785411784},
}  # fmt: skip
VALUE = {"type": "number", "description": "The amount to convert"}


def factor(quantity, unit):
    return FACTORS[quantity][unit]


def describe(quantity):
    names = list(FACTORS[quantity])
    return {
        "from_unit": {"type": "string", "enum": names, "description": "Unit of the given amount"},
        "to_unit": {"type": "string", "enum": names, "description": "Unit to convert to"},
    }


@tool(
    "Convert a length or distance, for example miles to kilometres.",
    required=["value", "from_unit", "to_unit"],
    value=VALUE,
    **describe("length"),
)
def convert_length(value, from_unit, to_unit):
    return {"value": value * factor("length", from_unit) / factor("length", to_unit)}


@tool(
    "Convert a mass or weight, for example pounds to kilograms.",
    required=["value", "from_unit", "to_unit"],
    value=VALUE,
    **describe("mass"),
)
def convert_mass(value, from_unit, to_unit):
    return {"value": value * factor("mass", from_unit) / factor("mass", to_unit)}


@tool(
    "Convert a volume of liquid, for example gallons to litres.",
    required=["value", "from_unit", "to_unit"],
    value=VALUE,
    **describe("volume"),
)
def convert_volume(value, from_unit, to_unit):
    return {"value": value * factor("volume", from_unit) / factor("volume", to_unit)}


@tool(
    "Convert a temperature between Celsius, Fahrenheit and Kelvin.",
    required=["degrees", "from_scale", "to_scale"],
    degrees={"type": "number", "description": "The temperature"},
    from_scale={"type": "string", "enum": ["celsius", "fahrenheit", "kelvin"]},
    to_scale={"type": "string", "enum": ["celsius", "fahrenheit", "kelvin"]},
)
def convert_temperature(degrees, from_scale, to_scale):
    to_celsius = {
        "celsius": degrees,
        "fahrenheit": (degrees - 32) / 1.8,
        "kelvin": degrees - 273.15,
    }[from_scale]
    value = {
        "celsius": to_celsius,
        "fahrenheit": to_celsius * 1.8 + 32,
        "kelvin": to_celsius + 273.15,
    }[to_scale]
    return {"degrees": round(value, 6)}


serve()
