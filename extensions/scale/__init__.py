"""More than one machine: tables in a bucket, Postgres, Ray, Kubernetes.

May import the core, and no other extension.
"""
