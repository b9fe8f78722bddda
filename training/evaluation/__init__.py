"""Measuring callers: what is asked, who answers, how an answer is read and scored."""
