"""How objects show themselves in notebooks."""

import html


class TextInNotebooks:
    """What prints as a table shows the same table in notebooks, where the representation of all its fields would be long."""

    def _repr_html_(self) -> str:
        return f'<pre style="line-height: 1.2">{html.escape(str(self))}</pre>'
