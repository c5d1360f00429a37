"""The rules of a decision, one function each: a situation in, a ruling out when the rule has something to say."""
