"""Writes plain data as YAML for reviews. `yaml_file` reads it back unchanged."""

from typing import Any, Final

import yaml

WIDTH: Final = 120
_TEXT: Final = "tag:yaml.org,2002:str"


def write_yaml(data: Any, *, ascii_only: bool = False) -> str:
    """`ascii_only` escapes all other characters, so that all are visible."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=not ascii_only, width=WIDTH)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # PyYAML quotes numbers of YAML 1.1, but not `1e3`, which is one in 1.2.
    quoted = None if text[:1].isalpha() else "'"
    return dumper.represent_scalar(_TEXT, text, style="|" if "\n" in text else quoted)


def _write_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    # Write names on one line, to keep the review focused on the content.
    short = all(isinstance(each, str) for each in items) and sum(map(len, items)) < WIDTH // 2
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=short)


_Dumper.add_representer(str, _write_text)
_Dumper.add_representer(list, _write_list)
