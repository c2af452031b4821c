"""Writes plain data as YAML that `yaml_file` reads back as it was, for reviews: every value in its place."""

from typing import Any, Final

import yaml

WIDTH: Final = 120
_TEXT: Final = "tag:yaml.org,2002:str"


def write_yaml(data: Any, *, ascii_only: bool = False) -> str:
    """Writes `data`, keys in their order. With `ascii_only` every other character is escaped, so that none is
    unseen.
    """
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=not ascii_only, width=WIDTH)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks and shares nothing."""

    def ignore_aliases(self, data: Any) -> bool:
        """Returns that nothing is written as an alias."""
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # PyYAML quotes what YAML 1.1 takes for a number, and would leave `1e3` bare, which 1.2 takes for one.
    quoted = None if text[:1].isalpha() else "'"
    return dumper.represent_scalar(_TEXT, text, style="|" if "\n" in text else quoted)


def _write_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    # Names stand on one line: a review is about what is said and done.
    short = all(isinstance(each, str) for each in items) and sum(map(len, items)) < WIDTH // 2
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=short)


_Dumper.add_representer(str, _write_text)
_Dumper.add_representer(list, _write_list)
