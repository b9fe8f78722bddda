"""Trajectories: tasks carried out in worlds, call by call, each answer as a real server gave it."""
