"""In the place of the package: a version whose templates are as Triton's tests expect."""
__version__ = "5.0.0"
