"""Exit status 0 when this container's web answers `/healthz`. Sends a Host that the server accepts."""

import sys
import urllib.request

try:
    with urllib.request.urlopen("http://127.0.0.1:8080/healthz", timeout=4) as answer:
        sys.exit(answer.status != 200)
except OSError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
