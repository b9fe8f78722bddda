"""Lists: what the replicas serve, whichever world it is of."""

from demo.world.catalogue import DemoWorld
from demo.world.full import FullWorld
from demo.world.month import MonthDay

Lists = DemoWorld | FullWorld | MonthDay
