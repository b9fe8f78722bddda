"""HTTP behaviour of a replica, and faults that can be switched on."""
