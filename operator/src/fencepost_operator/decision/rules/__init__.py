"""The rules of a decision, one function each: a context in, an outcome out when the rule has something to say."""
