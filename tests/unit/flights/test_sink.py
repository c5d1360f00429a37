from flights.sink import statements


def test_a_script_is_cut_at_its_semicolons() -> None:
    text = """
    -- a comment; with a semicolon
    CREATE TABLE a (k int PRIMARY KEY); -- another
    CREATE TABLE b (
      k int PRIMARY KEY
    );
    """

    assert [" ".join(statement.split()) for statement in statements(text)] == [
        "CREATE TABLE a (k int PRIMARY KEY)",
        "CREATE TABLE b ( k int PRIMARY KEY )",
    ]
