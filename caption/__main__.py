"""`python -m caption` is the `caption` command."""

import os
import sys

if __name__ == "__main__":
    # Python puts the working directory first on the path. In a stranger's folder, files named like optional modules of
    # libraries, such as tensorflow.py, would be imported. What PYTHONPATH names stays, and `caption.core.runtime.trust`
    # finds the modules that the user's configuration names.
    if not getattr(sys.flags, "safe_path", False) and sys.path[:1] in ([""], [os.getcwd()]):
        del sys.path[0]

    from caption.cli.main import main

    sys.exit(main())
