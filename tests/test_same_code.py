import ast

from tables import table

from tools.same_code import CodeComparison

BEFORE = '''
"""Old words."""

def load(key: str) -> str:
    """Loads."""
    # Old comment.
    found = read(key)
    return f"{found} is said"
'''


@table(
    "new, differences",
    (BEFORE.replace("Old words", "New words").replace("Loads", "Load the key").replace("Old comment", "Why"), 0),
    (BEFORE.replace("found", "value"), 0),
    # A local name may not take the place of a function that is called.
    (BEFORE.replace("found", "read"), 1),
    (BEFORE.replace("{found}", "{value}"), 1),
    (BEFORE.replace("key", "name"), 2),
    (BEFORE.replace("read(", "write("), 1),
    (BEFORE.replace("is said", "is known"), 1),
    (BEFORE + "    print(found)\n", 1),
)
def test_prose_and_local_names_may_change_and_code_may_not(new: str, differences: int) -> None:
    comparison = CodeComparison({})
    comparison.compare(ast.parse(BEFORE), ast.parse(new))
    assert len(comparison.differences) == differences


def test_texts_and_listed_names_may_change_if_allowed() -> None:
    comparison = CodeComparison({"key": "name"}, texts=True)
    comparison.compare(ast.parse(BEFORE), ast.parse(BEFORE.replace("key", "name").replace("is said", "is known")))
    assert comparison.differences == []


def test_rename_of_a_test_is_allowed_and_listed() -> None:
    comparison = CodeComparison({})
    comparison.compare(ast.parse("def test_old(): pass"), ast.parse("def test_new(): pass"))
    assert comparison.differences == []
    assert comparison.found == {"test_old": "test_new"}
