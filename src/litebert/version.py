"""The version, in the one place that the package, its folders and its build read it from."""

__version__ = "0.1.0"
