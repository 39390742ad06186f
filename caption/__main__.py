"""`python -m caption` is the `caption` command."""

import sys

from caption.cli.main import main

sys.exit(main())
