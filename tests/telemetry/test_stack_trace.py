from signoff.telemetry.stack_trace import trace_without_words


def test_trace_names_the_class_and_the_lines_without_the_message() -> None:
    token = "-".join(("sgf", "41", "secret"))

    def inner() -> None:
        try:
            raise LookupError(f"no answer to {token}")
        except LookupError as error:
            raise RuntimeError(f"failed with {token}") from error

    try:
        inner()
    except RuntimeError as error:
        text = trace_without_words(error)
    assert text.startswith("RuntimeError\n")
    assert ", in inner\n" in text
    assert token not in text
