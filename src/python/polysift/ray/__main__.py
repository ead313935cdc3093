"""``python -m polysift.ray``."""

import sys

from polysift.ray import main

sys.exit(main())
