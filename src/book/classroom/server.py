"""python -m book.classroom.server: one student's server, started with half the work.

jsonschema imports rfc3987_syntax if it is there, and that builds a parser for internationalised addresses at import: 1.7 of the 3.5
CPU seconds that a server took to import here (2 cores, JupyterLab 4.6). No schema of Jupyter's asks for such an address. When
thirty students log in within a minute, those seconds are the queue.
"""

import sys

sys.modules["rfc3987_syntax"] = None  # an ImportError for whoever asks, which jsonschema expects

from jupyterhub.singleuser import main

if __name__ == "__main__":
    main()
