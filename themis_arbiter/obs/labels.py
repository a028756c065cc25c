"""Names from users as metric labels and in log lines: text that no scrape and no log can choke on.

One lone surrogate makes a whole scrape fail to encode, and a newline forges a second log line. The escaping is
one-to-one, so that two hostile names never become one series: a backslash in a name is doubled.
"""


def visible(name: str) -> str:
    """`name` with everything that is not printable, and the backslash, written as an escape."""
    if name.isprintable() and "\\" not in name:
        return name
    return "".join(_escape(c) for c in name)


def legible(text: str) -> str:
    """`text` on one line, with everything that is not printable written as an escape.

    For sentences: names in them that are quoted have their escapes already, and one more would show a name that nobody has.
    """
    return text if text.isprintable() else "".join(c if c == "\\" else _escape(c) for c in text)


def _escape(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
