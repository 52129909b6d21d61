"""What the lecturer's guide says of a chapter, a question or an explorer, for the speaker's notes: lecturer.md is its only source."""

import re

from book.paths import NOTEBOOKS

GUIDE = NOTEBOOKS / "lecturer.md"


def rows(text):
    """Each table of the text as (list of column names, list of rows), cells as text."""
    for table in re.findall(r"(?m)(?:^\|.*\n?)+", text):
        head, _, *body = [
            [c.strip() for c in line.strip().strip("|").split("|")] for line in table.splitlines()
        ]
        yield head, body


class Guide:
    """Minutes, questions with what the room will say, and settings worth stopping at, as Markdown."""

    def __init__(self, text=None):
        text = GUIDE.read_text(encoding="utf-8") if text is None else text
        self.questions = {
            name: f"**{name}.** {rest.strip()}"
            for name, rest in re.findall(r"(?ms)^\*\*(Q\d+)\. (.+?)(?=\n\n|\Z)", text)
        }
        self.questions = {k: re.sub(r"^\*\*(Q\d+)\.\*\* ", r"**\1. ", v) for k, v in self.questions.items()}
        self.lectures, self.settings = {}, {}
        for head, body in rows(text):
            for row in body:
                if head[:2] == ["min", "chapter"]:
                    self.lectures[row[1]] = row
                elif head[:2] == ["chapter", "explorer"]:
                    self.settings.setdefault((row[0], row[1].strip("`")), []).append(row[2:])

    def minutes(self, number):
        """When in its lecture the chapter comes, what to show and what to ask."""
        if number not in self.lectures:
            return ""
        when, _, screen, ask = self.lectures[number]
        return f"**Minutes {when} of the lecture.** On screen: {screen}.\n\nAsk: {ask}"

    def question(self, name, where):
        if name not in self.questions:
            raise ValueError(f"{where} asks {name!r}; lecturer.md has {', '.join(self.questions)}")
        return self.questions[name]

    def explorer(self, number, name):
        return "\n".join(f"- Show {at}: {seen}" for at, seen in self.settings.get((number, name), []))
