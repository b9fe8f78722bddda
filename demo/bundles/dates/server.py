"""Dates: calendar arithmetic on ISO dates."""

import calendar
from datetime import date, timedelta

from stdio import serve, tool


def day(description):
    return {"type": "string", "format": "date", "description": f"{description}, as YYYY-MM-DD"}


@tool(
    "Count the days between two dates; negative when the end lies before the start.",
    required=["start", "end"],
    start=day("First date"),
    end=day("Second date"),
)
def days_between(start, end):
    return {"days": (date.fromisoformat(end) - date.fromisoformat(start)).days}


@tool(
    "Add a number of days and weeks to a date, or subtract with negative numbers.",
    required=["start"],
    start=day("Date to start from"),
    days={"type": "integer", "default": 0, "description": "Days to add"},
    weeks={"type": "integer", "default": 0, "description": "Weeks to add"},
)
def add_to_date(start, days=0, weeks=0):
    return {"date": str(date.fromisoformat(start) + timedelta(days=days, weeks=weeks))}


@tool("Tell which day of the week a date falls on.", required=["on"], on=day("The date"))
def weekday_of(on):
    return {"weekday": calendar.day_name[date.fromisoformat(on).weekday()]}


@tool(
    "Count the working days (Monday to Friday) from one date to another, without given holidays.",
    required=["start", "end"],
    start=day("First day counted"),
    end=day("Last day counted"),
    holidays={"type": "array", "items": {"type": "string", "format": "date"},
              "description": "Days off that fall in between"},
)  # fmt: skip
def count_working_days(start, end, holidays=()):
    first, last, off = date.fromisoformat(start), date.fromisoformat(end), set(holidays)
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    return {"working_days": sum(d.weekday() < 5 and str(d) not in off for d in days)}


@tool(
    "Draw the calendar of one month as text.",
    required=["year", "month"],
    year={"type": "integer", "minimum": 1, "maximum": 9999, "description": "Four-digit year"},
    month={"type": "integer", "minimum": 1, "maximum": 12, "description": "1 is January"},
    week_starts_on={"type": "string", "enum": ["monday", "sunday"], "default": "monday"},
)
def month_calendar(year, month, week_starts_on="monday"):
    first = 0 if week_starts_on == "monday" else 6
    return calendar.TextCalendar(first).formatmonth(year, month)


serve()
