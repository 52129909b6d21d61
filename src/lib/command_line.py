"""Arguments of `python -m lib`: what cannot be read is one line, not a page of usage."""

import argparse


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog.split()[-1]}: {message} (--help lists what is taken)\n")
