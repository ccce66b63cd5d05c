"""How modules list their families."""


def families():
    """A table of families, and the decorator that adds a generator with its variants to it.

    A generator gets a `Net` and the options of a variant, and returns the model's outputs or a whole model. The first line
    of its documentation is what the table in docs/zoo.md says.
    """
    table = {}

    def family(**variants):
        def add(function):
            table[function.__name__] = (function, variants)
            return function

        return add

    return table, family
