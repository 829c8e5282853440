"""What is raised where no program can be made."""


class NotScalarError(Exception):
    """Why a function is not made a scalar program."""
